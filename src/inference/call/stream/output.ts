import { enqueueInPieces } from "../../../lib/body-pieces.ts";
import type { CacheWriter } from "../cache/keeping.ts";
import { MAX_STORED_RESULT_BYTES } from "../idempotency/idempotency.ts";

export interface OutputOptions {
  /** When the stream began. */
  readonly nowMs: number;
  readonly keepaliveMs: number;
  /** Bytes kept as characters, sent while nothing else is. */
  readonly keepalive: string;
  /** Whether the whole stream may be asked for. */
  readonly isKept: boolean;
  /** Takes the answer for the response cache. */
  readonly keeping?: CacheWriter | undefined;
}

/** The client's side of a stream. What is written before there is a body is kept for it. */
export class StreamOutput {
  readonly #keepaliveMs: number;
  readonly #keepalive: string;
  readonly #keeping: CacheWriter | undefined;
  /** Everything that was sent, as long as that can be stored. */
  #sent: Uint8Array[] | undefined;
  #sentBytes = 0;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** Undefined where there is a body, or was one. */
  #early: Uint8Array[] | undefined = [];
  #isClosedEarly = false;
  #isCut = false;
  #lastWriteMs: number;
  #hasDelivered = false;

  constructor({ nowMs, keepaliveMs, keepalive, isKept, keeping }: OutputOptions) {
    this.#lastWriteMs = nowMs;
    this.#keepaliveMs = keepaliveMs;
    this.#keepalive = keepalive;
    this.#keeping = keeping;
    if (isKept) this.#sent = [];
  }

  /** Something of the answer has left. */
  get hasDelivered(): boolean {
    return this.#hasDelivered;
  }

  /** The body asks for more with `pull`, and reports with `cancel` that the client is gone. */
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
    this.#keeping?.push(bytes);
    this.send(bytes, nowMs);
  }

  /** Sends bytes that are no part of the answer: an error. */
  send(bytes: Uint8Array, nowMs: number): void {
    if (bytes.length === 0) return;
    if (this.#early !== undefined) this.#early.push(bytes);
    else if (this.#controller === undefined) return;
    this.#lastWriteMs = nowMs;
    if (this.#sent !== undefined) this.#keep(bytes);
    if (this.#controller === undefined) return;
    enqueueInPieces(this.#controller, bytes);
  }

  /** Sends a sign of life where nothing was sent for the keepalive interval. */
  keepAlive(nowMs: number): void {
    if (this.#controller === undefined || nowMs - this.#lastWriteMs < this.#keepaliveMs) return;
    this.send(Buffer.from(this.#keepalive, "latin1"), nowMs);
  }

  /** Breaks the connection off, so that no client takes what it got for the whole. */
  cut(): void {
    this.#isCut = true;
    // Without a reason: Bun prints one.
    this.#controller?.error();
    this.#controller = undefined;
  }

  close(): void {
    if (this.#early !== undefined) this.#isClosedEarly = true;
    else this.#controller?.close();
  }

  /** What was sent, and `ending`. Null where it was too much to keep. */
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

  #keep(bytes: Uint8Array): void {
    this.#sentBytes += bytes.length;
    if (this.#sentBytes > MAX_STORED_RESULT_BYTES) this.#sent = undefined;
    else this.#sent!.push(bytes);
  }
}
