import type { Database } from "../../../db/client.ts";
import {
  type ConversationRecord,
  deleteConversation,
  findConversation,
  insertConversation,
  removeItem,
  updateConversation,
} from "../../../db/queries/conversations.ts";
import { keepResponses } from "../../../db/queries/responses.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { Item } from "../endpoints/responses/request.ts";
import { nameOfResponse, responseId } from "../endpoints/responses/response-json.ts";
import {
  conversationNotFound,
  MAX_STORED_INPUT_BYTES,
  type ResponseStore,
  type StoredItems,
  storedTooLong,
} from "../endpoints/responses/response-store.ts";
import { itemsJson, storedInput } from "../endpoints/responses/stored-items.ts";

/** Conversations of one organization. Each is stored until it is deleted. */
const MAX_CONVERSATIONS = 10_000;

type Metadata = ConversationRecord["metadata"];

interface ConversationsDependencies {
  readonly sql: Database;
  readonly store: ResponseStore;
}

/**
 * Conversations of organizations. Responses with the field `conversation` continue them, and callers add and
 * remove items.
 */
export class Conversations {
  readonly #dependencies: ConversationsDependencies;

  constructor(dependencies: ConversationsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Creates a conversation with its first items. Throws 403 if the organization has too many conversations, and
   * 413 if the items are too long.
   */
  async create(
    { organizationId, id: keyId }: Pick<ApiKeyRecord, "organizationId" | "id">,
    metadata: Metadata,
    items: readonly Item[],
  ): Promise<ConversationRecord> {
    const id = newId("conv");
    const created = { id, keyId, metadata };
    const { sql } = this.#dependencies;
    if (!(await insertConversation(sql, organizationId, created, MAX_CONVERSATIONS))) {
      const message = `An organization can have at most ${MAX_CONVERSATIONS} conversations.`;
      throw new GatewayError("quota_exceeded", message);
    }
    if (items.length > 0) await this.addItems(organizationId, id, items);
    return this.find(organizationId, id);
  }

  /** Returns the conversation. Throws 404 if it does not exist. */
  async find(organizationId: string, id: string): Promise<ConversationRecord> {
    const conversation = await findConversation(this.#dependencies.sql, organizationId, id);
    if (conversation === undefined) throw conversationNotFound(id);
    return conversation;
  }

  /** Replaces the metadata. Throws 404 if the conversation does not exist. */
  async update(
    organizationId: string,
    id: string,
    metadata: Metadata,
  ): Promise<ConversationRecord> {
    const { sql } = this.#dependencies;
    if (!(await updateConversation(sql, organizationId, { id, metadata }))) {
      throw conversationNotFound(id);
    }
    return this.find(organizationId, id);
  }

  /**
   * Deletes the conversation. Throws 404 if it does not exist.
   *
   * @param sql a database that records the act, if it is an administrative one
   */
  async delete(organizationId: string, id: string, sql = this.#dependencies.sql): Promise<void> {
    if (!(await deleteConversation(sql, organizationId, id))) throw conversationNotFound(id);
  }

  /**
   * Adds items after the existing items. Returns them in their stored form. Throws 404 if the conversation does
   * not exist, and 413 if it would become too long.
   */
  async addItems(organizationId: string, id: string, items: readonly Item[]): Promise<Item[]> {
    const { sql, store } = this.#dependencies;
    const { bytes } = await this.find(organizationId, id);
    const name = nameOfResponse(newId("req"));
    const turn = { body: { input: items }, earlier: [], referable: [] };
    const storedItems = storedInput(turn, name);
    const input = new TextEncoder().encode(itemsJson(storedItems));
    if (bytes + input.length > MAX_STORED_INPUT_BYTES) throw storedTooLong("items");
    // Without a key, because it is no response.
    const row = {
      ...{ id: responseId(name), organizationId, keyId: null },
      ...{ previousId: null, chainId: id },
    };
    await store.write(row, [["input", input]]);
    const added = { storedBytes: input.length, chainBytes: input.length, conversationId: id };
    await sql`SELECT ${keepResponses(sql, [{ id: row.id, ...added }])}`;
    return storedItems;
  }

  /**
   * Returns all items, including removed items, and the ids of the removed items. Throws 404 if the conversation
   * does not exist, and 413 if it is too long.
   */
  async items(
    organizationId: string,
    id: string,
  ): Promise<{ readonly items: StoredItems; readonly removedItems: readonly string[] }> {
    return this.#dependencies.store.ofConversation(organizationId, id);
  }

  async removeItem(id: string, itemId: string): Promise<void> {
    await removeItem(this.#dependencies.sql, id, itemId);
  }
}
