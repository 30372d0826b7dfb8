import { type Clock, sleep } from "../../lib/clock.ts";
import { type ByteRange, ObjectMissingError, StorageError } from "./interface.ts";
import type { S3Requests } from "./s3-requests.ts";

export interface S3Object {
  readonly key: string;
  /** The bytes to read. If undefined, the whole object is read. */
  readonly range: ByteRange | undefined;
}

/** Milliseconds between two pieces after which the connection counts as broken. */
const SILENCE_MS = 20_000;
/** Milliseconds without a piece, over all attempts to continue, after which the read fails. */
const GIVE_UP_MS = 60_000;
const FIRST_DELAY_MS = 250;
const MAX_DELAY_MS = 5_000;

type Reader = ReadableStreamDefaultReader<Uint8Array>;

/**
 * A read of an object, or of a part of it. If the connection breaks, the read continues after the
 * delivered bytes, by a range of the same object, which its entity tag identifies. It fails if no
 * byte arrives for a minute.
 */
export class S3Read {
  readonly #requests: S3Requests;
  readonly #clock: Clock;
  readonly #key: string;
  /** The position of the next byte. */
  #at: number;
  /** The position after the last byte. Undefined until the store states it. */
  #end: number | undefined;
  #etag: string | undefined;
  #reader: Reader | undefined;
  #isCancelled = false;

  constructor(requests: S3Requests, clock: Clock, { key, range }: S3Object) {
    this.#requests = requests;
    this.#clock = clock;
    this.#key = key;
    this.#at = range?.start ?? 0;
    this.#end = range?.end;
  }

  /** Opens the object. Rejects with ObjectMissingError or StorageError. */
  async open(): Promise<ReadableStream<Uint8Array>> {
    this.#reader = await this.#connect();
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const piece = await this.#next();
          if (piece === undefined) controller.close();
          else controller.enqueue(piece);
        },
        cancel: () => {
          this.#isCancelled = true;
          this.#release();
        },
      },
      { highWaterMark: 0 },
    );
  }

  async #connect(): Promise<Reader> {
    const isWhole = this.#at === 0 && this.#end === undefined;
    const lastByte = this.#end === undefined ? "" : this.#end - 1;
    const headers = {
      ...(isWhole ? {} : { range: `bytes=${this.#at}-${lastByte}` }),
      ...(this.#etag ? { "if-match": this.#etag } : {}),
    };
    const answer = await this.#requests.send(
      { method: "GET", key: this.#key, headers },
      [200, 206, 404, 412, 416],
    );
    const { status, body } = answer;
    const length = answer.headers.get("content-length");
    const bytes = length === null ? undefined : Number(length);
    const fail = async (error: StorageError): Promise<never> => {
      await body?.cancel();
      throw error;
    };
    if (status === 404) return fail(new ObjectMissingError(this.#key));
    if (status === 412) return fail(new WrongObjectError("a file changed while it was read"));
    const isPart = status === 206 || (status === 200 && this.#at === 0);
    const hasExpectedLength =
      bytes === undefined || bytes === (this.#end ?? this.#at + bytes) - this.#at;
    if (!isPart || !hasExpectedLength) {
      return fail(new WrongObjectError("the store does not answer with the requested part"));
    }
    this.#etag ??= answer.headers.get("etag") ?? "";
    if (bytes !== undefined) this.#end = this.#at + bytes;
    return (body ?? new Blob([]).stream()).getReader();
  }

  /** Returns the next piece, or undefined at the end. */
  async #next(): Promise<Uint8Array | undefined> {
    const untilMs = this.#clock.nowMs() + GIVE_UP_MS;
    for (let delayMs = FIRST_DELAY_MS; ; delayMs = Math.min(2 * delayMs, MAX_DELAY_MS)) {
      try {
        this.#reader ??= await this.#connect();
        if (!this.#isCancelled) return this.#count(await this.#piece(this.#reader));
        throw new StorageError("the read was cancelled");
      } catch (error) {
        this.#release();
        const isFinal = error instanceof WrongObjectError || error instanceof ObjectMissingError;
        if (isFinal || this.#isCancelled) throw error;
        if (this.#clock.nowMs() + delayMs >= untilMs) {
          throw new StorageError("the store stopped sending in the middle of a file", error);
        }
        await sleep(this.#clock, delayMs);
      }
    }
  }

  async #piece(reader: Reader): Promise<Uint8Array | undefined> {
    const silence = Promise.withResolvers<never>();
    const cancelTimer = this.#clock.after(SILENCE_MS, () =>
      silence.reject(new StorageError("the store sent nothing for too long")),
    );
    try {
      return (await Promise.race([reader.read(), silence.promise])).value;
    } finally {
      cancelTimer();
    }
  }

  #count(piece: Uint8Array | undefined): Uint8Array | undefined {
    this.#at += piece?.byteLength ?? 0;
    const end = this.#end ?? this.#at;
    if (this.#at > end) throw new WrongObjectError("the store sent more bytes than requested");
    if (piece === undefined && this.#at < end)
      throw new StorageError("the store closed the connection early");
    return piece;
  }

  #release(): void {
    void this.#reader?.cancel().catch(() => {});
    this.#reader = undefined;
  }
}

/** A failure that a retry would not resolve. */
class WrongObjectError extends StorageError {}
