import type { Database } from "../../../../db/client.ts";
import type { CachedResponse, StatementEffect } from "../../../../db/ledger/effects.ts";
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
import { yieldToEventLoop } from "../../../lib/turn-of-loop.ts";

/** Of a sealed piece: sealing one and writing it out takes about a millisecond. */
const PIECE_BYTES = 262_144;
/** Of the items that a request builds on: as much as a body may bring. */
export const MAX_STORED_INPUT_BYTES = 33_554_432;
/** Opened before other work gets its turn; a piece takes as long as so many of its bytes, however short it is. */
const OPENED_AT_ONCE_BYTES = 4_194_304;
const BYTES_OF_OPENING = 8_192;
/** Conversations beyond this are read in turn: they take a multiple of their length in memory. */
const LONG_BYTES = 1_048_576;
const LONG_AT_A_TIME = 2;
const LONG_AT_A_TIME_OF_ONE = 1;
const MAX_WAITING_LONG = 512;

/** Items as JSON with commas between them, in UTF-8. */
export interface StoredItems {
  readonly pieces: readonly Uint8Array[];
  readonly byteLength: number;
}

/** Where a response stands in its conversation. */
export interface ChainPlace {
  /** Null at the beginning of a conversation. */
  readonly previousId: string | null;
  readonly chainId: string;
  /** Set where it becomes part of a conversation: behind what is the last of that when it is charged. */
  readonly conversationId?: string;
  /** Of all items before it. */
  readonly chainBytes: number;
}

interface ConversationItems {
  readonly items: StoredItems;
  readonly place: ChainPlace;
  /** Ids of items that were taken out. */
  readonly removedItems: readonly string[];
}

type PlainPiece = Omit<ContentPiece, "sealed"> & { readonly plain: Uint8Array };

const NOTHING: StoredItems = { pieces: [], byteLength: 0 };
const COMMA = new TextEncoder().encode(",");

/** Bounds the long responses that are being read. */
export function createLongReadSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: LONG_AT_A_TIME,
    mostOfOne: LONG_AT_A_TIME_OF_ONE,
    maxWaiting: MAX_WAITING_LONG,
    refusal: () => overloaded("Too many long responses are being read."),
  });
}

/**
 * Stored responses (spec 3.5): sealed at rest, each with its own input and output alone. Pieces are written before
 * the charge over the connections of requests, so that long ones delay no charge, and the charge's transaction makes
 * them visible: what a process that dies leaves in between no reader sees, and it is removed after a day.
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
   * @param isAll there are no others. Short ones may be lost until the charge is written, which fails then:
   * leave it out where something has been delivered, for that is charged in any case.
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
      // An empty content has a piece too: what has none is not there.
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

  /** Makes a response visible with its charge. */
  keep(kept: CachedResponse): StatementEffect {
    return keepResponseEffect(kept);
  }

  /**
   * All items up to a response, its own included, and the place behind it. Throws 400 where it, or one before it,
   * is gone, and 413 where they are more than a body may bring.
   */
  async conversation(
    organizationId: string,
    id: string,
  ): Promise<{ readonly items: StoredItems; readonly place: ChainPlace }> {
    const found = await findResponse(this.#sql, organizationId, id);
    if (found === undefined) throw previousNotFound(id);
    const { chainId, chainBytes } = found;
    if (chainBytes > MAX_STORED_INPUT_BYTES) throw storedTooLong("previous_response_id");
    const items = await this.#inTurn(organizationId, chainBytes, async () => {
      const { pieces, isWhole } = await readChain(this.#sql, organizationId, id);
      if (!isWhole) throw previousNotFound(id);
      return this.#open(pieces);
    });
    return { items, place: { previousId: id, chainId, chainBytes } };
  }

  /**
   * All items of a conversation, those too that were taken out, and the place behind them. Throws 404 where there is no
   * such conversation, and 413.
   */
  async ofConversation(organizationId: string, id: string): Promise<ConversationItems> {
    const found = await findConversation(this.#sql, organizationId, id);
    if (found === undefined) throw conversationNotFound(id);
    const { lastId: previousId, bytes: chainBytes, removedItems } = found;
    if (chainBytes > MAX_STORED_INPUT_BYTES) throw storedTooLong("conversation");
    const items =
      previousId === null
        ? NOTHING
        : await this.#inTurn(organizationId, chainBytes, async () => {
            const { pieces } = await readChain(this.#sql, organizationId, previousId);
            return this.#open(pieces);
          });
    const place = { previousId, chainId: id, chainBytes, conversationId: id };
    return { items, place, removedItems };
  }

  /** The items of responses; those that are gone, or not the organization's, are left out. Throws 413. */
  async itemsOf(organizationId: string, ids: readonly string[]): Promise<StoredItems> {
    if (ids.length === 0) return NOTHING;
    const bytes = await sizeOfResponses(this.#sql, organizationId, ids);
    if (bytes > MAX_STORED_INPUT_BYTES) throw storedTooLong("input");
    return this.#inTurn(organizationId, bytes, async () =>
      this.#open(await readContents(this.#sql, organizationId, ids, ["input", "output"])),
    );
  }

  /** The JSON of a response without its output, and its output. Undefined where it was not answered, or is gone. */
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

  /** The JSON of a response as it has begun, or as it has ended without an answer; undefined where it has not. */
  async unanswered(
    organizationId: string,
    id: string,
    kind: "begun" | "ended",
  ): Promise<Uint8Array | undefined> {
    const rows = await readContents(this.#sql, organizationId, [id], [kind]);
    return rows.length === 0 ? undefined : Buffer.concat((await this.#open(rows)).pieces);
  }

  /**
   * Reads all that a response was made from: the items of those before it, as far as they are there, and its input.
   * Where they are long, the next ones are read when `read` is done. Throws 404.
   */
  async readInput<Result>(
    organizationId: string,
    id: string,
    read: (items: StoredItems) => Result | Promise<Result>,
  ): Promise<Result> {
    const found = await findResponse(this.#sql, organizationId, id, "any");
    if (found === undefined) throw responseNotFound();
    return this.#inTurn(organizationId, found.chainBytes, async () => {
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

  /** Throws 404. */
  async delete(organizationId: string, id: string): Promise<void> {
    if (!(await deleteResponse(this.#sql, organizationId, id))) throw responseNotFound();
  }

  /** Contents that follow one another are joined as they stand, and others by a comma. */
  async #open(rows: readonly ChainPiece[]): Promise<StoredItems> {
    const pieces: Uint8Array[] = [];
    let byteLength = 0;
    let opened = 0;
    let last: ChainPiece | undefined;
    for (const row of rows) {
      const plain = this.#keyring.open(row.sealed);
      const isSame = last?.id === row.id && last.kind === row.kind;
      if (!isSame && byteLength > 0 && plain.length > 0) {
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
 * Writes what is sealed with the key that seals at present. `write` resolves with the id of that key, and has written
 * nothing where it is another one than it was given.
 */
export async function underSealingKey<Written extends { readonly sealingId: string }>(
  keyring: Keyring,
  write: (keyId: string) => Promise<Written>,
): Promise<Written> {
  const { sealingId } = keyring;
  const written = await write(sealingId);
  if (written.sealingId === sealingId) return written;
  keyring.noteSealing(written.sealingId);
  const again = await write(written.sealingId);
  if (again.sealingId === written.sealingId) return again;
  throw new Error("the master key was replaced twice in a moment");
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
  const message = `The stored items that the request builds on take more than ${MAX_STORED_INPUT_BYTES} bytes.`;
  return new GatewayError("input_too_long", message, { param });
}
