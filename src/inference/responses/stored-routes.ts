import { type Static, Type } from "typebox";
import { isRunning } from "../../../db/queries/background-responses.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { bodyInPieces } from "../../lib/body-pieces.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { AnswerThread } from "../../providers/thread-work.ts";
import { responseNotFound } from "../endpoints/responses/response-store.ts";
import { responseAnswer, responseEvent } from "../endpoints/responses/schema.ts";
import { eventsOf, type ResponseServices } from "./background-routes.ts";
import { include, itemList, itemsQuery, pageOf, readPage } from "./item-pages.ts";

const access: Access = { kind: "storage", scope: "responses" };
const tag = "Responses";
const getQuery = Type.Object(
  {
    include,
    "include[]": include,
    stream: Type.Optional(Type.Boolean()),
    starting_after: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: Number.MAX_SAFE_INTEGER,
        description: "Sequence number of an event; the stream begins after this event.",
      }),
    ),
    include_obfuscation: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);
const deletedResponse = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("response"),
    deleted: Type.Literal(true),
  },
  { title: "DeletedResponse" },
);

/** Returns the routes of stored responses (spec 4.6). */
export function storedResponseRoutes(
  services: ResponseServices,
  thread: AnswerThread,
): RouteDefinition[] {
  const { store, background, runs } = services;
  return [
    route({
      method: "GET",
      path: "/v1/responses/:id",
      tag,
      operationId: "responses.retrieve",
      summary: "Retrieve a stored response",
      description: "If `stream` is true, streams the events of a background response.",
      access,
      query: getQuery,
      responses: {
        200: {
          description: "The response, or its events if stream is true.",
          schema: responseAnswer,
          eventSchema: responseEvent,
        },
      },
      handle: (context) => retrieve(services, context),
    }),
    route({
      method: "POST",
      path: "/v1/responses/:id/cancel",
      tag,
      operationId: "responses.cancel",
      summary: "Cancel a background response",
      access,
      responses: {
        200: { description: "The response in its final state.", schema: responseAnswer },
      },
      async handle(context) {
        const { organizationId } = context.caller.key;
        const { id } = context.params;
        if ((await background.find(organizationId, id)) === undefined) {
          if ((await store.response(organizationId, id)) === undefined) throw responseNotFound();
          throw new GatewayError(
            "response_not_cancellable",
            "Only a response that was created with background true can be cancelled.",
          );
        }
        await runs.cancelAnywhere(organizationId, id);
        return jsonOf(context, await background.response(organizationId, id));
      },
    }),
    route({
      method: "GET",
      path: "/v1/responses/:id/input_items",
      tag,
      operationId: "responses.input_items.list",
      summary: "List the input items of a response",
      description: "Includes the items of the responses before it.",
      access,
      query: itemsQuery,
      responses: { 200: { description: "A page of items.", schema: itemList } },
      async handle(context) {
        const { organizationId } = context.caller.key;
        const body = await store.readInput(organizationId, context.params.id, (items) =>
          readPage(thread, organizationId, items, pageOf(context.query)),
        );
        return jsonOf(context, Buffer.from(body));
      },
    }),
    route({
      method: "DELETE",
      path: "/v1/responses/:id",
      tag,
      operationId: "responses.delete",
      summary: "Delete a stored response",
      access,
      responses: { 200: { description: "The response was deleted.", schema: deletedResponse } },
      async handle({ caller, params: { id } }) {
        const { organizationId } = caller.key;
        const current = await background.find(organizationId, id);
        if (current !== undefined && isRunning(current.state)) {
          await runs.cancelAnywhere(organizationId, id);
        }
        await store.delete(organizationId, id);
        return jsonResponse({ id, object: "response", deleted: true });
      },
    }),
  ];
}

async function retrieve(
  services: ResponseServices,
  context: RequestContext<unknown, Static<typeof getQuery>, { readonly id: string }>,
): Promise<Response> {
  const { background } = services;
  const { caller, query } = context;
  const { organizationId } = caller.key;
  const { id } = context.params;
  if (query.stream !== true) {
    if (query.starting_after !== undefined) {
      const message = 'Query parameter "starting_after": needs stream=true';
      throw new GatewayError("invalid_query", message, { param: "starting_after" });
    }
    return jsonOf(context, await background.response(organizationId, id));
  }
  if ((await background.find(organizationId, id)) === undefined) {
    await background.response(organizationId, id);
    const message = "stream: only a response that was created with background true has a stream.";
    throw new GatewayError("unsupported_parameter", message, { param: "stream" });
  }
  const startingAfter = query.starting_after ?? -1;
  const { open } = services.following.reserve(organizationId);
  return eventsOf(context, open, { id, startingAfter });
}

export function jsonOf(context: RequestContext, json: Uint8Array): Response {
  return context.respond(bodyInPieces(json), { "content-type": "application/json" });
}
