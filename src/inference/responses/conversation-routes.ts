import { Type } from "typebox";
import type { ConversationRecord } from "../../../db/queries/conversations.ts";
import { jsonResponse } from "../../http/error-response.ts";
import {
  type Access,
  optional,
  organizationOf,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { AnswerThread } from "../../providers/thread-work.ts";
import { referredId } from "../endpoints/responses/item-references.ts";
import type { Item } from "../endpoints/responses/request.ts";
import { assertItems } from "../endpoints/responses/request-checks.ts";
import { inputItem } from "../endpoints/responses/schema.ts";
import type { PageOptions } from "../endpoints/responses/stored-items.ts";
import type { Conversations } from "./conversations.ts";
import { include, itemList, itemsQuery, pageOf, readPage, storedItem } from "./item-pages.ts";
import { jsonOf } from "./stored-routes.ts";

const access: Access = { kind: "storage", scope: "responses" };
const tag = "Conversations";
/** Items that can be added in one request. */
const MAX_ITEMS = 20;
const MAX_METADATA = 16;
const MAX_METADATA_KEY = 64;
const MAX_METADATA_VALUE = 512;

const metadata = Type.Record(Type.String(), Type.String({ maxLength: MAX_METADATA_VALUE }), {
  maxProperties: MAX_METADATA,
  // TypeBox does not check the length of a record's keys.
  propertyNames: { minLength: 1, maxLength: MAX_METADATA_KEY },
});
const items = Type.Array(inputItem, { maxItems: MAX_ITEMS });
const strict = { additionalProperties: false };
const newConversation = Type.Object(
  { metadata: optional(metadata), items: optional(items) },
  strict,
);
const changedConversation = Type.Object({ metadata }, strict);
const newItems = Type.Object({ items }, strict);
const includeQuery = Type.Object({ include, "include[]": include }, strict);
const conversation = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("conversation"),
    created_at: Type.Integer(),
    metadata,
  },
  { title: "Conversation" },
);
const deletedConversation = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("conversation.deleted"),
    deleted: Type.Literal(true),
  },
  { title: "DeletedConversation" },
);

const shown = ({ id, createdAt, metadata: stored }: ConversationRecord): Response =>
  jsonResponse({ id, object: "conversation", created_at: createdAt, metadata: stored });
const FOUND = { 200: { description: "The conversation.", schema: conversation } };
const LISTED = { 200: { description: "The items.", schema: itemList } };

/** Returns the routes of conversations, which responses continue. */
export function conversationRoutes(
  conversations: Conversations,
  thread: AnswerThread,
): RouteDefinition[] {
  const path = "/v1/conversations";
  const conversationPath = `${path}/:id`;
  const common = { tag, access };
  return [
    route({
      ...common,
      method: "POST",
      path,
      operationId: "conversations.create",
      summary: "Create a conversation",
      body: newConversation,
      responses: FOUND,
      async handle(context) {
        const body = context.body;
        const added = checked(body.items ?? []);
        return shown(await conversations.create(context.caller.key, body.metadata ?? {}, added));
      },
    }),
    route({
      ...common,
      method: "GET",
      path: conversationPath,
      operationId: "conversations.retrieve",
      summary: "Retrieve a conversation",
      responses: FOUND,
      handle: async (context) =>
        shown(await conversations.find(organizationOf(context), context.params.id)),
    }),
    route({
      ...common,
      method: "POST",
      path: conversationPath,
      operationId: "conversations.update",
      summary: "Set the metadata of a conversation",
      body: changedConversation,
      responses: FOUND,
      async handle(context) {
        const { metadata: changed } = context.body;
        return shown(
          await conversations.update(organizationOf(context), context.params.id, changed),
        );
      },
    }),
    route({
      ...common,
      method: "DELETE",
      path: conversationPath,
      operationId: "conversations.delete",
      summary: "Delete a conversation",
      responses: {
        200: { description: "The conversation was deleted.", schema: deletedConversation },
      },
      async handle(context) {
        const { id } = context.params;
        await conversations.delete(organizationOf(context), id);
        return jsonResponse({ id, object: "conversation.deleted", deleted: true });
      },
    }),
    route({
      ...common,
      method: "POST",
      path: `${conversationPath}/items`,
      operationId: "conversations.items.create",
      summary: "Add items to a conversation",
      query: includeQuery,
      body: newItems,
      responses: LISTED,
      async handle(context) {
        const { items: added } = context.body;
        const { id } = context.params;
        const data = await conversations.addItems(organizationOf(context), id, checked(added));
        const ends = { first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null };
        return jsonResponse({ object: "list", data, ...ends, has_more: false });
      },
    }),
    route({
      ...common,
      method: "GET",
      path: `${conversationPath}/items`,
      operationId: "conversations.items.list",
      summary: "List the items of a conversation",
      description: "Contains the items of its responses and the added items.",
      query: itemsQuery,
      responses: LISTED,
      handle: (context) => read(conversations, thread, context, pageOf(context.query)),
    }),
    route({
      ...common,
      method: "GET",
      path: `${conversationPath}/items/:item_id`,
      operationId: "conversations.items.retrieve",
      summary: "Retrieve an item of a conversation",
      query: includeQuery,
      responses: { 200: { description: "The item.", schema: storedItem } },
      handle: (context) => read(conversations, thread, context, only(context.params.item_id)),
    }),
    route({
      ...common,
      method: "DELETE",
      path: `${conversationPath}/items/:item_id`,
      operationId: "conversations.items.delete",
      summary: "Delete an item of a conversation",
      responses: FOUND,
      async handle(context) {
        const { id, item_id: itemId } = context.params;
        await read(conversations, thread, context, only(itemId));
        await conversations.removeItem(id, itemId);
        return shown(await conversations.find(organizationOf(context), id));
      },
    }),
  ];
}

/** Returns the page options of a single item. */
const only = (itemId: string): PageOptions => ({ ...pageOf({}), only: itemId });

async function read(
  conversations: Conversations,
  thread: AnswerThread,
  context: RequestContext<unknown, RequestContext["query"], { readonly id: string }>,
  options: PageOptions,
): Promise<Response> {
  const owner = organizationOf(context);
  const { items: all, removedItems } = await conversations.items(owner, context.params.id);
  const removed = { removed: removedItems };
  const json = await readPage(thread, owner, all, { ...options, ...removed });
  return jsonOf(context, Buffer.from(json));
}

/** Returns the items. Throws 400 if they are invalid or contain a reference. */
function checked(list: readonly Item[]): readonly Item[] {
  assertItems(list, "items");
  const at = list.findIndex((item) => referredId(item) !== undefined);
  if (at < 0) return list;
  const param = `items.${at}.type`;
  const message = `Request body field "${param}": must not be a reference`;
  throw new GatewayError("invalid_body", message, { param });
}
