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

/** Of an organization: each is kept until it is deleted. */
const MAX_CONVERSATIONS = 10_000;

type Metadata = ConversationRecord["metadata"];

interface ConversationsDependencies {
  readonly sql: Database;
  readonly store: ResponseStore;
}

/**
 * Conversations of organizations: responses with the field `conversation` continue them, and callers add items to them
 * and take items out.
 */
export class Conversations {
  readonly #dependencies: ConversationsDependencies;

  constructor(dependencies: ConversationsDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 403 and 413. */
  async create(
    organizationId: string,
    metadata: Metadata,
    items: readonly Item[],
  ): Promise<ConversationRecord> {
    const id = newId("conv");
    const { sql } = this.#dependencies;
    if (!(await insertConversation(sql, organizationId, { id, metadata }, MAX_CONVERSATIONS))) {
      const message = `An organization may have at most ${MAX_CONVERSATIONS} conversations.`;
      throw new GatewayError("quota_exceeded", message);
    }
    if (items.length > 0) await this.addItems(organizationId, id, items);
    return this.find(organizationId, id);
  }

  /** Throws 404. */
  async find(organizationId: string, id: string): Promise<ConversationRecord> {
    const found = await findConversation(this.#dependencies.sql, organizationId, id);
    if (found === undefined) throw conversationNotFound(id);
    return found;
  }

  /** Throws 404. */
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

  /** Throws 404. */
  async delete(organizationId: string, id: string): Promise<void> {
    const { sql } = this.#dependencies;
    if (!(await deleteConversation(sql, organizationId, id))) throw conversationNotFound(id);
  }

  /** Adds items behind what is there. Returns them as they are kept. Throws 404 and 413. */
  async addItems(organizationId: string, id: string, items: readonly Item[]): Promise<Item[]> {
    const { sql, store } = this.#dependencies;
    const { bytes } = await this.find(organizationId, id);
    const name = nameOfResponse(newId("req"));
    const turn = { body: { input: items }, earlier: [], referable: [] };
    const kept = storedInput(turn, name);
    const input = new TextEncoder().encode(itemsJson(kept));
    if (bytes + input.length > MAX_STORED_INPUT_BYTES) throw storedTooLong("items");
    const row = { id: responseId(name), organizationId, previousId: null, chainId: id };
    await store.write(row, [["input", input]]);
    const added = { ownBytes: input.length, chainBytes: input.length, conversationId: id };
    await sql`SELECT ${keepResponses(sql, [{ id: row.id, ...added }])}`;
    return kept;
  }

  /** All items, those too that were taken out, and the ids of these. Throws 404 and 413. */
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
