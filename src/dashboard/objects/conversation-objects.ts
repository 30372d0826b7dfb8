import { Type } from "typebox";
import {
  findStoredOwner,
  type ListedConversation,
  listConversationObjects,
} from "../../../db/queries/object-lists.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { conversationNotFound } from "../../inference/endpoints/responses/response-store.ts";
import { readPage } from "../../inference/responses/item-pages.ts";
import { jsonOf } from "../../inference/responses/stored-routes.ts";
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
import { assertShowable } from "./response-objects.ts";

const conversation = Type.Object({
  id: Type.String(),
  metadata: Type.Record(Type.String(), Type.String()),
  bytes: Type.Integer(),
  key_id: nullable(Type.String()),
  created_at: Type.String(),
});

/** Returns the routes of the page of conversations. */
export function conversationObjectRoutes({
  sql,
  responses: { conversations },
  thread,
}: ObjectServices): RouteDefinition[] {
  const path = `${OBJECTS}/conversations`;
  const access = sessionAccess("responses");
  const found = async (context: RequestContext<unknown, unknown, { readonly id: string }>) => {
    const { id } = context.params;
    const { organizationId } = context.caller.key;
    const owner = await findStoredOwner(sql, "conversations", organizationId, id);
    return shown(sql, context, owner, () => conversationNotFound(id));
  };
  return [
    route({
      method: "GET",
      path,
      tag,
      summary: "List conversations",
      access,
      query: pageQuery,
      responses: {
        200: { description: "The conversations, newest first", schema: listSchema(conversation) },
      },
      handle: async (context) =>
        listResponse(await listConversationObjects(sql, pageIn(context)), conversationShape),
    }),
    route({
      method: "POST",
      path: `${path}/:id/content`,
      tag,
      summary: "Read items of a conversation",
      access,
      query: pageQuery,
      responses: {
        200: { description: "Items, the first ones first" },
        413: { description: "The contents are too long to show." },
      },
      async handle(context) {
        const owner = await found(context);
        assertShowable(owner);
        const { id } = owner;
        const { organizationId } = context.caller.key;
        const { after, limit } = pageIn(context);
        const { items, removedItems } = await conversations.items(organizationId, id);
        const page = { limit, order: "asc", after, removed: removedItems } as const;
        const json = await readPage(thread, organizationId, items, page);
        await recordRead(sql, context, { action: "conversation.read", id });
        return jsonOf(context, Buffer.from(json));
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/:id`,
      tag,
      summary: "Delete a conversation",
      access,
      responses: { 200: { description: "The conversation was deleted", schema: done } },
      async handle(context) {
        const { id } = await found(context);
        const act = { action: "conversation.deleted", id };
        await conversations.delete(
          context.caller.key.organizationId,
          id,
          auditedAct(sql, context, act),
        );
        return jsonResponse({ id });
      },
    }),
  ];
}

function conversationShape(record: ListedConversation) {
  const { id, metadata, bytes } = record;
  return {
    ...{ id, metadata, bytes, key_id: record.keyId },
    created_at: isoTime(record.createdAtMs),
  };
}
