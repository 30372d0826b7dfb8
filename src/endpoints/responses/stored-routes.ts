import { Type } from "typebox";
import { jsonResponse } from "../../http/error-response.ts";
import { MAX_WHOLE_BYTES } from "../../http/read-body.ts";
import {
  type Access,
  nullable,
  type RequestContext,
  type RouteDefinition,
} from "../../http/route.ts";
import { bodyInPieces } from "../../lib/body-pieces.ts";
import { GatewayError } from "../../lib/errors.ts";
import { SharedBytesWriter } from "../../lib/shared-bytes.ts";
import { type AnswerThread, readAnswerText } from "../../providers/thread-work.ts";
import { CallAbort } from "../../providers/transport/call-abort.ts";
import type { ResponseStore, StoredItems } from "./response-store.ts";
import { responseAnswer } from "./schema.ts";
import { itemsPage, type PageOptions } from "./stored-items.ts";

const access: Access = { kind: "storage", scope: "responses" };
const tag = "Responses";
const MAX_PAGE = 100;
const DEFAULT_PAGE = 20;

/** What is stored is answered whole, whatever is asked to be included. */
const include = Type.Optional(Type.String());
const getQuery = Type.Object(
  { include, "include[]": include, stream: Type.Optional(Type.Boolean()) },
  { additionalProperties: false },
);
const itemsQuery = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    order: Type.Optional(Type.Enum(["asc", "desc"], { default: "desc" })),
    after: Type.Optional(Type.String({ description: "Id of an item: the page begins after it" })),
    include,
    "include[]": include,
  },
  { additionalProperties: false },
);
const itemList = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(Type.Object({ id: Type.String(), type: Type.String() })),
  first_id: nullable(Type.String()),
  last_id: nullable(Type.String()),
  has_more: Type.Boolean(),
});
const deletedResponse = Type.Object({
  id: Type.String(),
  object: Type.Literal("response"),
  deleted: Type.Literal(true),
});

/** Stored responses (spec 4.6). */
export function storedResponseRoutes(
  store: ResponseStore,
  thread: AnswerThread,
): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: "/v1/responses/:id",
      tag,
      summary: "Retrieve a stored response",
      access,
      query: getQuery,
      responses: { 200: { description: "The response", schema: responseAnswer } },
      handle: (context) => retrieve(store, context),
    },
    {
      method: "GET",
      path: "/v1/responses/:id/input_items",
      tag,
      summary: "List what a response was made from, its ancestry included",
      access,
      query: itemsQuery,
      responses: { 200: { description: "A page of items", schema: itemList } },
      handle: (context) => listInput(store, thread, context),
    },
    {
      method: "DELETE",
      path: "/v1/responses/:id",
      tag,
      summary: "Delete a stored response",
      access,
      responses: { 200: { description: "It is deleted", schema: deletedResponse } },
      async handle({ caller, params }) {
        const id = params.id!;
        await store.delete(caller.key.organizationId, id);
        return jsonResponse({ id, object: "response", deleted: true });
      },
    },
  ];
}

async function retrieve(store: ResponseStore, context: RequestContext): Promise<Response> {
  const { caller, params, query } = context;
  const { head, output } = await store.response(caller.key.organizationId, params.id!);
  if (query.stream === true) {
    const message = "stream is not supported yet: a response that is whole has no stream.";
    throw new GatewayError("unsupported_parameter", message, { param: "stream" });
  }
  const before = Buffer.concat(head.pieces).subarray(0, -1);
  const parts = [before, Buffer.from(',"output":['), ...output.pieces, Buffer.from("]}")];
  return context.respond(bodyInPieces(Buffer.concat(parts)), {
    "content-type": "application/json",
  });
}

async function listInput(
  store: ResponseStore,
  thread: AnswerThread,
  context: RequestContext,
): Promise<Response> {
  const { caller, params, query } = context;
  const { organizationId } = caller.key;
  const options: PageOptions = {
    limit: (query.limit as number | undefined) ?? DEFAULT_PAGE,
    order: (query.order as "asc" | "desc" | undefined) ?? "desc",
    after: query.after as string | undefined,
  };
  const reading = { thread, owner: organizationId };
  const { body } = await store.readInput(organizationId, params.id!, (items) =>
    readAnswerText(reading, itemsPage, textOf(items), options, new CallAbort()),
  );
  if (body === null) {
    const message = 'Invalid cursor in "after": there is no such item.';
    throw new GatewayError("invalid_query", message, { param: "after" });
  }
  return context.respond(bodyInPieces(body), { "content-type": "application/json" });
}

function textOf({ pieces, byteLength }: StoredItems) {
  if (byteLength <= MAX_WHOLE_BYTES) return Buffer.concat(pieces).toString("utf8");
  const writer = new SharedBytesWriter();
  for (const piece of pieces) writer.push(piece);
  return writer.end();
}
