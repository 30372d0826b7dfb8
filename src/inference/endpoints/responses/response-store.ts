import type { Database } from "../../../../db/client.ts";
import type { StatementEffect, StoredResponse } from "../../../../db/ledger/effects.ts";
import { findConversation } from "../../../../db/queries/conversations.ts";
import {
  type ChainPiece,
  type ContentKind,
  type ContentPiece,
  deleteResponse,
  findResponse,
  keepResponseEffect,
  type NewResponse,
  readChain,
  readContents,
  sizeOfResponses,
  writeUncharged,
} from "../../../../db/queries/responses.ts";
import { GatewayError, overloaded } from "../../../lib/errors.ts";
import { FairSemaphore } from "../../../lib/fair-share.ts";
import type { Keyring } from "../../../lib/keyring.ts";
import { yieldToEventLoop } from "../../../lib/yield-to-event-loop.ts";

/** Maximum bytes of a sealed piece. Sealing and writing a piece takes about a millisecond. */
const PIECE_BYTES = 262_144;
/** Maximum bytes of the stored items that a request refers to. Equal to the limit of a body. */
export const MAX_STORED_INPUT_BYTES = 33_554_432;
/**
 * Bytes that are opened before the event loop runs other work. Opening a piece costs at least as much time as
 * `BYTES_OF_OPENING` bytes.
 */
const OPENED_AT_ONCE_BYTES = 4_194_304;
const BYTES_OF_OPENING = 8_192;
/**
 * Maximum bytes of a short conversation. Longer ones are read in turn, because they take several times their
 * length in memory.
 */
const LONG_BYTES = 1_048_576;
const LONG_AT_A_TIME = 2;
const LONG_AT_A_TIME_OF_ONE = 1;
const MAX_WAITING_LONG = 512;

/** Items as JSON in UTF-8, separated by commas. */
export interface StoredItems {
  readonly pieces: readonly Uint8Array[];
  readonly byteLength: number;
}

/** The position of a response in its conversation. */
export interface ChainPosition {
  /** Null at the beginning of a conversation. */
  readonly previousId: string | null;
  readonly chainId: string;
  /** The conversation that the response is added to when it is charged, as its last response. */
  readonly conversationId?: string;
  /** Bytes of all earlier items. */
  readonly chainBytes: number;
}

interface ConversationItems {
  readonly items: StoredItems;
  readonly position: ChainPosition;
  /** Ids of items that were removed from the conversation. */
  readonly removedItems: readonly string[];
}

type PlainPiece = Omit<ContentPiece, "sealed"> & { readonly plain: Uint8Array };

const NOTHING: StoredItems = { pieces: [], byteLength: 0 };
const COMMA = new TextEncoder().encode(",");

/** Returns the semaphore that bounds how many long responses are read at a time. */
export function createLongReadSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: LONG_AT_A_TIME,
    mostOfOne: LONG_AT_A_TIME_OF_ONE,
    maxWaiting: MAX_WAITING_LONG,
    refusal: () => overloaded("Too many long responses are being read."),
  });
}

/**
 * Stored responses (spec 3.5), sealed at rest. Each has only its own input and output. Pieces are written
 * before the charge on the requests' connections, so that long responses do not delay charges. The charge's
 * transaction makes them visible. Pieces of a process that died in between stay invisible, and are removed
 * after a day.
 */
export class ResponseStore {
  readonly #sql: Database;
  readonly #keyring: Keyring;
  readonly #longReads = createLongReadSemaphore();

  constructor(dependencies: { readonly sql: Database; readonly keyring: Keyring }) {
    this.#sql = dependencies.sql;
    this.#keyring = dependencies.keyring;
  }

  /**
   * Writes contents of a response that is not charged yet.
   *
   * @param isAll true if there are no other contents. Short contents can then be lost until the charge is
   * written, and the charge fails in that case. Use false if something was already delivered, because that is
   * charged in any case.
   */
  async write(
    response: NewResponse,
    contents: readonly (readonly [ContentKind, Uint8Array])[],
    { isAll = false } = {},
  ): Promise<void> {
    let batch: PlainPiece[] = [];
    let bytes = 0;
    let waitsForDisk = !isAll;
    for (const [kind, content] of contents) {
      // An empty content has one piece, because a content without pieces counts as absent.
      for (let number = 0; number === 0 || number * PIECE_BYTES < content.length; number++) {
        const at = number * PIECE_BYTES;
        const plain = content.subarray(at, at + PIECE_BYTES);
        if (bytes + plain.length > PIECE_BYTES && batch.length > 0) {
          waitsForDisk = true;
          await this.#writeBatch(response, batch, { waitsForDisk });
          batch = [];
          bytes = 0;
        }
        batch.push({ kind, number, plain });
        bytes += plain.length;
      }
    }
    await this.#writeBatch(response, batch, { waitsForDisk });
  }

  async #writeBatch(
    response: NewResponse,
    batch: readonly PlainPiece[],
    options: { readonly waitsForDisk: boolean },
  ): Promise<void> {
    const sealedUnder = (keyId: string) =>
      batch.map(({ plain, ...piece }) => ({
        ...piece,
        sealed: this.#keyring.sealUnder(keyId, plain),
      }));
    await underSealingKey(this.#keyring, async (keyId) => {
      const pieces = sealedUnder(keyId);
      return { sealingId: await writeUncharged(this.#sql, response, pieces, keyId, options) };
    });
  }

  /** Returns the effect that makes a response visible with its charge. */
  keep(response: StoredResponse): StatementEffect {
    return keepResponseEffect(response);
  }

  /**
   * Returns all items up to a response, including its own, and the position after it. Throws 400 if the
   * response or an earlier one no longer exists, and 413 if the items are longer than a body can be.
   */
  async conversation(
    organizationId: string,
    id: string,
  ): Promise<{ readonly items: StoredItems; readonly position: ChainPosition }> {
    const response = await findResponse(this.#sql, organizationId, id);
    if (response === undefined) throw previousNotFound(id);
    const { chainId, chainBytes } = response;
    if (chainBytes > MAX_STORED_INPUT_BYTES) throw storedTooLong("previous_response_id");
    const items = await this.#inTurn(organizationId, chainBytes, async () => {
      const { pieces, isWhole } = await readChain(this.#sql, organizationId, id);
      if (!isWhole) throw previousNotFound(id);
      return this.#open(pieces);
    });
    return { items, position: { previousId: id, chainId, chainBytes } };
  }

  /**
   * Returns all items of a conversation, including removed ones, and the position after them. Throws 404 if
   * the conversation does not exist, and 413 if the items are longer than a body can be.
   */
  async ofConversation(organizationId: string, id: string): Promise<ConversationItems> {
    const conversation = await findConversation(this.#sql, organizationId, id);
    if (conversation === undefined) throw conversationNotFound(id);
    const { lastId: previousId, bytes: chainBytes, removedItems } = conversation;
    if (chainBytes > MAX_STORED_INPUT_BYTES) throw storedTooLong("conversation");
    const items =
      previousId === null
        ? NOTHING
        : await this.#inTurn(organizationId, chainBytes, async () => {
            const { pieces } = await readChain(this.#sql, organizationId, previousId);
            return this.#open(pieces);
          });
    const position = { previousId, chainId: id, chainBytes, conversationId: id };
    return { items, position, removedItems };
  }

  /**
   * Returns the items of responses. Responses that no longer exist or belong to another organization are left
   * out. Throws 413 if the items are longer than a body can be.
   */
  async itemsOf(organizationId: string, ids: readonly string[]): Promise<StoredItems> {
    if (ids.length === 0) return NOTHING;
    const bytes = await sizeOfResponses(this.#sql, organizationId, ids);
    if (bytes > MAX_STORED_INPUT_BYTES) throw storedTooLong("input");
    return this.#inTurn(organizationId, bytes, async () =>
      this.#open(await readContents(this.#sql, organizationId, ids, ["input", "output"])),
    );
  }

  /**
   * Returns the JSON of a response without its output, and its output. Returns undefined if the response was
   * not answered or no longer exists.
   */
  async response(
    organizationId: string,
    id: string,
  ): Promise<{ readonly head: StoredItems; readonly output: StoredItems } | undefined> {
    const rows = await readContents(this.#sql, organizationId, [id], ["head", "output"]);
    if (rows.length === 0) return undefined;
    return {
      head: await this.#open(rows.filter(({ kind }) => kind === "head")),
      output: await this.#open(rows.filter(({ kind }) => kind === "output")),
    };
  }

  /**
   * Returns the JSON of a response that has begun, or that has ended without an answer. Returns undefined if
   * there is none.
   */
  async unanswered(
    organizationId: string,
    id: string,
    kind: "begun" | "ended",
  ): Promise<Uint8Array | undefined> {
    const rows = await readContents(this.#sql, organizationId, [id], [kind]);
    return rows.length === 0 ? undefined : Buffer.concat((await this.#open(rows)).pieces);
  }

  /**
   * Reads all items that a response was made from: the items of earlier responses that still exist, and its
   * input. The next long conversation is read after `read` has finished. Throws 404 if the response does not exist.
   */
  async readInput<Result>(
    organizationId: string,
    id: string,
    read: (items: StoredItems) => Result | Promise<Result>,
  ): Promise<Result> {
    const response = await findResponse(this.#sql, organizationId, id, "any");
    if (response === undefined) throw responseNotFound();
    return this.#inTurn(organizationId, response.chainBytes, async () => {
      const { pieces } = await readChain(this.#sql, organizationId, id, "any");
      return read(await this.#open(pieces.filter((row) => row.id !== id || row.kind !== "output")));
    });
  }

  #inTurn<Result>(
    organizationId: string,
    bytes: number,
    read: () => Promise<Result>,
  ): Promise<Result> {
    return bytes > LONG_BYTES ? this.#longReads.run(organizationId, read) : read();
  }

  /**
   * Deletes a response. Throws 404 if it does not exist.
   *
   * @param sql a database that records the act, if it is an administrative one
   */
  async delete(organizationId: string, id: string, sql = this.#sql): Promise<void> {
    if (!(await deleteResponse(sql, organizationId, id))) throw responseNotFound();
  }

  /** Opens pieces. Pieces of one content are joined directly, and contents are separated by commas. */
  async #open(rows: readonly ChainPiece[]): Promise<StoredItems> {
    const pieces: Uint8Array[] = [];
    let byteLength = 0;
    let opened = 0;
    let last: ChainPiece | undefined;
    for (const row of rows) {
      const plain = this.#keyring.open(row.sealed);
      const isSameContent = last?.id === row.id && last.kind === row.kind;
      if (!isSameContent && byteLength > 0 && plain.length > 0) {
        pieces.push(COMMA);
        byteLength += COMMA.length;
      }
      pieces.push(plain);
      byteLength += plain.length;
      opened += plain.length + BYTES_OF_OPENING;
      last = row;
      if (opened < OPENED_AT_ONCE_BYTES) continue;
      opened = 0;
      await yieldToEventLoop();
    }
    return { pieces, byteLength };
  }
}

/**
 * Writes sealed data with the current sealing key. `write` resolves with the id of the current key. If it
 * received another key's id, it has written nothing.
 */
export async function underSealingKey<Written extends { readonly sealingId: string }>(
  keyring: Keyring,
  write: (keyId: string) => Promise<Written>,
): Promise<Written> {
  const { sealingId } = keyring;
  const written = await write(sealingId);
  if (written.sealingId === sealingId) return written;
  keyring.noteSealing(written.sealingId);
  const retried = await write(written.sealingId);
  if (retried.sealingId === written.sealingId) return retried;
  throw new Error("the master key was replaced twice during one write");
}

function previousNotFound(id: string): GatewayError {
  const message = `There is no response ${JSON.stringify(id)} to continue from: it, or one before it, was not stored, has expired, or was deleted.`;
  return new GatewayError("previous_response_not_found", message, {
    param: "previous_response_id",
  });
}

export function conversationNotFound(id: string): GatewayError {
  const message = `There is no conversation ${JSON.stringify(id)}.`;
  return new GatewayError("conversation_not_found", message, { param: "conversation" });
}

export function responseNotFound(): GatewayError {
  return new GatewayError("response_not_found", "There is no such response.");
}

export function storedTooLong(param: string): GatewayError {
  const message = `The stored items that the request refers to have more than ${MAX_STORED_INPUT_BYTES} bytes.`;
  return new GatewayError("input_too_long", message, { param });
}
