import { enqueueInPieces } from "../../../lib/body-pieces.ts";
import type { CacheWriter } from "../cache/cache-writer.ts";
import { MAX_STORED_RESULT_BYTES } from "../idempotency/idempotency.ts";

export interface OutputOptions {
  /** The start of the stream, on the steady clock. */
  readonly nowMs: number;
  readonly keepaliveMs: number;
  /** Bytes stored as characters (latin1). Sent while there is no other output. */
  readonly keepalive: string;
  /** True if the whole stream must be stored, for its idempotency key. */
  readonly isStored: boolean;
  /** Receives the answer for the response cache. */
  readonly cacheWriter?: CacheWriter | undefined;
}

/** The client's side of a stream. Buffers bytes that are written before the body is read. */
export class StreamOutput {
  readonly #keepaliveMs: number;
  readonly #keepalive: string;
  readonly #cacheWriter: CacheWriter | undefined;
  /** All bytes sent so far, while they are small enough to be stored. */
  #sent: Uint8Array[] | undefined;
  #sentBytes = 0;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Bytes written before the body was read. Undefined after that. */
  #early: Uint8Array[] | undefined = [];
  #isClosedEarly = false;
  #isCut = false;
  #lastWriteMs: number;
  #hasDelivered = false;

  constructor({ nowMs, keepaliveMs, keepalive, isStored, cacheWriter: keeping }: OutputOptions) {
    this.#lastWriteMs = nowMs;
    this.#keepaliveMs = keepaliveMs;
    this.#keepalive = keepalive;
    this.#cacheWriter = keeping;
    if (isStored) this.#sent = [];
  }

  /** True after part of the answer has been delivered. */
  get hasDelivered(): boolean {
    return this.#hasDelivered;
  }

  /**
   * Returns the body. It calls `pull` when the client reads on, and `cancel` when the client disconnects.
   */
  body(pull: () => Promise<void>, cancel: () => void): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => this.#begin(controller),
        pull,
        cancel: () => {
          this.#controller = undefined;
          cancel();
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** Sends bytes of the answer. */
  deliver(bytes: Uint8Array, nowMs: number): void {
    this.#hasDelivered = true;
    this.#cacheWriter?.push(bytes);
    this.send(bytes, nowMs);
  }

  /** Sends bytes that are not part of the answer, such as an error. */
  send(bytes: Uint8Array, nowMs: number): void {
    if (bytes.length === 0) return;
    if (this.#early !== undefined) this.#early.push(bytes);
    else if (this.#controller === undefined) return;
    this.#lastWriteMs = nowMs;
    if (this.#sent !== undefined) this.#recordSent(bytes);
    if (this.#controller === undefined) return;
    enqueueInPieces(this.#controller, bytes);
  }

  /** Sends a keepalive if nothing was sent during the keepalive interval. */
  keepAlive(nowMs: number): void {
    if (this.#controller === undefined || nowMs - this.#lastWriteMs < this.#keepaliveMs) return;
    this.send(Buffer.from(this.#keepalive, "latin1"), nowMs);
  }

  /** Aborts the connection, so that no client mistakes a partial answer for a complete one. */
  cut(): void {
    this.#isCut = true;
    // Without a reason, because Bun prints a reason to the log.
    this.#controller?.error();
    this.#controller = undefined;
  }

  close(): void {
    if (this.#early !== undefined) this.#isClosedEarly = true;
    else this.#controller?.close();
  }

  /** Returns all sent bytes and `ending`. Returns null if they are too large to be stored. */
  whole(ending: Uint8Array): Uint8Array | null {
    return this.#sent === undefined ? null : Buffer.concat([...this.#sent, ending]);
  }

  #begin(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
    const early = this.#early!;
    this.#early = undefined;
    for (const bytes of early) enqueueInPieces(controller, bytes);
    if (this.#isCut) controller.error();
    else if (this.#isClosedEarly) controller.close();
  }

  #recordSent(bytes: Uint8Array): void {
    this.#sentBytes += bytes.length;
    if (this.#sentBytes > MAX_STORED_RESULT_BYTES) this.#sent = undefined;
    else this.#sent!.push(bytes);
  }
}
