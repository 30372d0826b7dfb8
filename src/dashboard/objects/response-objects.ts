import { Type } from "typebox";
import { isRunning } from "../../../db/queries/background-responses.ts";
import {
  findStoredOwner,
  type ListedResponse,
  listResponseObjects,
  type StoredOwner,
} from "../../../db/queries/object-lists.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { responseNotFound } from "../../inference/endpoints/responses/response-store.ts";
import { readPage } from "../../inference/responses/item-pages.ts";
import { jsonOf } from "../../inference/responses/stored-routes.ts";
import { GatewayError } from "../../lib/errors.ts";
import { usdNumber } from "../../lib/money.ts";
import { isoTime } from "../../lib/utc-time.ts";
import {
  auditedAct,
  done,
  listResponse,
  listSchema,
  OBJECTS,
  type ObjectServices,
  pageIn,
  pageQuery,
  recordRead,
  sessionAccess,
  shown,
  tag,
} from "./object-access.ts";

/** The largest contents that a page shows, in bytes. */
const MAX_SHOWN_BYTES = 2_097_152;
const MAX_INPUT_ITEMS = 100;

const tokens = nullable(Type.Integer());
const response = Type.Object({
  id: Type.String(),
  status: Type.String(),
  model: nullable(Type.String()),
  prompt_tokens: tokens,
  completion_tokens: tokens,
  cost_usd: nullable(Type.Number()),
  bytes: Type.Integer(),
  key_id: nullable(Type.String()),
  created_at: Type.String(),
});

/** Returns the routes of the page of stored responses. */
export function responseObjectRoutes(services: ObjectServices): RouteDefinition[] {
  const { sql, clock, responses, thread } = services;
  const { store, background, runs } = responses;
  const path = `${OBJECTS}/responses`;
  const access = sessionAccess("responses");
  const found = async (context: RequestContext<unknown, unknown, { readonly id: string }>) => {
    const { organizationId } = context.caller.key;
    const owner = await findStoredOwner(sql, "responses", organizationId, context.params.id);
    return shown(sql, context, owner, responseNotFound);
  };
  return [
    route({
      method: "GET",
      path,
      tag,
      summary: "List stored responses",
      access,
      query: pageQuery,
      responses: {
        200: { description: "The responses, newest first", schema: listSchema(response) },
      },
      handle: async (context) =>
        listResponse(await listResponseObjects(sql, pageIn(context), clock.nowMs()), responseShape),
    }),
    route({
      method: "POST",
      path: `${path}/:id/content`,
      tag,
      summary: "Read a stored response with its input",
      access,
      responses: {
        200: { description: "The response, and the first 100 items of its input as a list" },
        413: { description: "The contents are too long to show." },
      },
      async handle(context) {
        const owner = await found(context);
        assertShowable(owner);
        const { organizationId } = context.caller.key;
        const { id } = owner;
        const json = await background.response(organizationId, id);
        const page = { limit: MAX_INPUT_ITEMS, order: "asc", after: undefined } as const;
        const input = await store.readInput(organizationId, id, (items) =>
          readPage(thread, organizationId, items, page),
        );
        await recordRead(sql, context, { action: "response.read", id });
        const parts = ['{"response":', json, ',"input":', input, "}"];
        return jsonOf(context, Buffer.concat(parts.map((part) => Buffer.from(part))));
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/:id`,
      tag,
      summary: "Delete a stored response",
      access,
      responses: { 200: { description: "The response was deleted", schema: done } },
      async handle(context) {
        const { id } = await found(context);
        const { organizationId } = context.caller.key;
        const current = await background.find(organizationId, id);
        if (current !== undefined && isRunning(current.state)) {
          await runs.cancelAnywhere(organizationId, id);
        }
        const act = { action: "response.deleted", id };
        await store.delete(organizationId, id, auditedAct(sql, context, act));
        return jsonResponse({ id });
      },
    }),
  ];
}

/** Throws 413 if the contents are too long for a page. */
export function assertShowable({ bytes, chainBytes }: StoredOwner): void {
  if (Math.max(bytes, chainBytes) <= MAX_SHOWN_BYTES) return;
  const message = `The contents have more than ${MAX_SHOWN_BYTES / 1024 / 1024} MiB, which is too long to show. Read them with the API.`;
  throw new GatewayError("input_too_long", message);
}

function responseShape(record: ListedResponse) {
  const { id, model, state } = record;
  return {
    ...{ id, model, status: state === null || state === "answered" ? "completed" : state },
    prompt_tokens: record.promptTokens,
    completion_tokens: record.completionTokens,
    cost_usd: record.chargedNano === null ? null : usdNumber(record.chargedNano),
    bytes: record.storedBytes,
    key_id: record.keyId,
    created_at: isoTime(record.createdAtMs),
  };
}
