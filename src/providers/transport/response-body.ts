import type { PieceReader } from "../interface.ts";
import { HttpError } from "./http-error.ts";
import type { ProviderResponse } from "./provider-response.ts";
import type { ResponseHead } from "./response-head.ts";

/** Unread bytes above which the connection is paused. */
export const MAX_UNREAD_BYTES = 262_144;

/** The connection of a body. Implemented by Exchange. */
export interface BodySource {
  pause(): void;
  resume(): void;
  /** The rest will not be read. */
  abandon(): void;
}

type PieceRead = { done: boolean; value?: Uint8Array | undefined };

/**
 * The bytes of one response. The connection pushes them, and one reader pulls them: this object, a stream, or a text.
 */
class ResponseBody implements PieceReader {
  readonly #source: BodySource;
  /** The first unread piece with its start and end, and the later pieces. */
  #first: Buffer | undefined;
  #firstStart = 0;
  #firstEnd = 0;
  #later: Buffer[] | undefined;
  #unreadBytes = 0;
  #isPaused = false;
  #hasEnded = false;
  #hasReader = false;
  #hasFailed = false;
  #failure: unknown;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #isPulled = false;
  #reading: PromiseWithResolvers<PieceRead> | undefined;
  #isCancelled = false;
  #text: { resolve(text: string): void; reject(failure: unknown): void } | undefined;

  constructor(source: BodySource) {
    this.#source = source;
  }

  /**
   * Adds a piece, from `start` to `end` in `bytes`. It is passed on without a copy, so it must not be changed
   * afterwards.
   */
  push(bytes: Buffer, start: number, end: number): void {
    if (this.#isCancelled) return;
    if (this.#reading !== undefined) {
      this.#endReading().resolve({ done: false, value: part(bytes, start, end) });
      return;
    }
    if (this.#isPulled) {
      this.#isPulled = false;
      this.#controller!.enqueue(part(bytes, start, end));
      return;
    }
    if (this.#first === undefined) {
      this.#first = bytes;
      this.#firstStart = start;
      this.#firstEnd = end;
    } else {
      this.#later ??= [];
      this.#later.push(part(bytes, start, end));
    }
    this.#unreadBytes += end - start;
    if (this.#text !== undefined || this.#isPaused || this.#unreadBytes <= MAX_UNREAD_BYTES) return;
    this.#isPaused = true;
    this.#source.pause();
  }

  end(): void {
    this.#hasEnded = true;
    if (this.#reading !== undefined) this.#endReading().resolve({ done: true });
    this.#text?.resolve(this.#takeText());
    if (this.#controller !== undefined && this.#first === undefined) this.#controller.close();
  }

  /** Fails the body. A stream still reads the bytes before the failure first. */
  fail(failure: unknown): void {
    if (this.#hasEnded || this.#hasFailed) return;
    this.#hasFailed = true;
    this.#failure = failure;
    if (this.#reading !== undefined) this.#endReading().reject(failure);
    this.#text?.reject(failure);
    if (this.#first === undefined) this.#controller?.error(failure);
  }

  /** Fails immediately and drops unread bytes. */
  abort(reason: unknown): void {
    this.#dropPieces();
    this.fail(reason);
  }

  text(): Promise<string> {
    if (this.#hasReader) return Promise.reject(new TypeError("the body is already being read"));
    this.#hasReader = true;
    if (this.#hasFailed) return Promise.reject(this.#failure);
    if (this.#hasEnded) return Promise.resolve(this.#takeText());
    return new Promise((resolve, reject) => {
      this.#text = { resolve, reject };
      this.#resume();
    });
  }

  /** Returns the whole body if it has arrived and is not longer than `maxBytes`. The caller is then its reader. */
  wholeText(maxBytes: number): string | undefined {
    if (!this.#hasEnded || this.#hasReader || this.#unreadBytes > maxBytes) return undefined;
    this.#hasReader = true;
    return this.#takeText();
  }

  /** Makes the caller the reader of the pieces. */
  reader(): PieceReader {
    if (this.#hasReader) throw new TypeError("the body is already being read");
    this.#hasReader = true;
    return this;
  }

  take(): Uint8Array | undefined {
    if (this.#first === undefined) return undefined;
    const piece = this.#takePieces();
    this.#resume();
    return piece;
  }

  get isOver(): boolean {
    return this.#hasEnded && this.#first === undefined;
  }

  /** Returns the next piece. Call it again only after the previous call has resolved. */
  read(): Promise<PieceRead> {
    const value = this.take();
    if (value !== undefined) return Promise.resolve({ done: false, value });
    if (this.#hasEnded || this.#isCancelled) return Promise.resolve({ done: true });
    if (this.#hasFailed) return Promise.reject(this.#failure);
    this.#reading = Promise.withResolvers<PieceRead>();
    this.#resume();
    return this.#reading.promise;
  }

  cancel(): Promise<void> {
    this.#isCancelled = true;
    this.#dropPieces();
    if (this.#reading !== undefined) this.#endReading().resolve({ done: true });
    if (!this.#hasEnded && !this.#hasFailed) this.#source.abandon();
    return Promise.resolve();
  }

  #endReading(): PromiseWithResolvers<PieceRead> {
    const reading = this.#reading!;
    this.#reading = undefined;
    return reading;
  }

  stream(): ReadableStream<Uint8Array> {
    if (this.#hasReader) throw new TypeError("the body is already being read");
    this.#hasReader = true;
    return new ReadableStream<Uint8Array>(
      {
        pull: (controller) => this.#pull(controller),
        cancel: () => {
          this.#dropPieces();
          this.#controller = undefined;
          this.#isPulled = false;
          if (!this.#hasEnded && !this.#hasFailed) this.#source.abandon();
        },
      },
      { highWaterMark: 0 },
    );
  }

  #pull(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
    if (this.#first !== undefined) {
      controller.enqueue(this.#takePieces());
      if (this.#hasFailed) controller.error(this.#failure);
      else if (this.#hasEnded) controller.close();
    } else if (this.#hasFailed) controller.error(this.#failure);
    else if (this.#hasEnded) controller.close();
    else this.#isPulled = true;
    this.#resume();
  }

  #resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#source.resume();
  }

  #takePieces(): Buffer {
    const first = part(this.#first!, this.#firstStart, this.#firstEnd);
    const others = this.#later;
    this.#dropPieces();
    return others === undefined ? first : Buffer.concat([first, ...others]);
  }

  #dropPieces(): void {
    this.#first = undefined;
    this.#later = undefined;
    this.#unreadBytes = 0;
  }

  #takeText(): string {
    if (this.#first === undefined) return "";
    if (this.#later !== undefined) {
      const all = this.#takePieces();
      return textOf(all, 0, all.length);
    }
    const text = textOf(this.#first, this.#firstStart, this.#firstEnd);
    this.#dropPieces();
    return text;
  }
}

function part(bytes: Buffer, start: number, end: number): Buffer {
  return start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end);
}

/** Returns the text without its byte order mark. */
function textOf(bytes: Buffer, start: number, end: number): string {
  const hasMark =
    end - start >= 3 &&
    bytes[start] === 0xef &&
    bytes[start + 1] === 0xbb &&
    bytes[start + 2] === 0xbf;
  return bytes.toString("utf8", hasMark ? start + 3 : start, end);
}

/** A response: its head and its body. */
export class ExchangeResponse extends ResponseBody implements ProviderResponse {
  readonly status: number;
  readonly headers: ResponseHead;
  readonly hasBody: boolean;
  readonly #decode: ReturnType<typeof decoderOf>;
  #stream: ReadableStream<Uint8Array> | undefined;

  constructor(
    source: BodySource,
    head: ResponseHead,
    hasBody: boolean,
    decode: ReturnType<typeof decoderOf>,
  ) {
    super(source);
    this.status = head.status;
    this.headers = head;
    this.hasBody = hasBody;
    this.#decode = decode;
  }

  get body(): ReadableStream<Uint8Array> | null {
    if (!this.hasBody) return null;
    if (this.#stream === undefined) {
      const raw = this.stream();
      this.#stream = this.#decode === undefined ? raw : this.#decode(raw);
    }
    return this.#stream;
  }

  override wholeText(maxBytes: number): string | undefined {
    return this.#decode === undefined ? super.wholeText(maxBytes) : undefined;
  }

  override reader(): PieceReader {
    return this.#decode === undefined ? super.reader() : this.body!.getReader();
  }

  override text(): Promise<string> {
    if (!this.hasBody) return Promise.resolve("");
    return this.#decode === undefined ? super.text() : this.#expandedText();
  }

  async #expandedText(): Promise<string> {
    return new Response(this.body).text();
  }
}

const FORMATS: Readonly<Record<string, "gzip" | "deflate" | "brotli" | "zstd">> = {
  gzip: "gzip",
  "x-gzip": "gzip",
  deflate: "deflate",
  br: "brotli",
  zstd: "zstd",
};

/**
 * Returns a function that decompresses a body, for servers that encode it without being asked. Returns undefined if the
 * body is not encoded. Throws HttpError for an unknown encoding.
 */
export function decoderOf(
  contentEncoding: string | null,
): ((body: ReadableStream<Uint8Array>) => ReadableStream<Uint8Array>) | undefined {
  if (contentEncoding === null) return undefined;
  const name = contentEncoding.toLowerCase();
  if (name === "" || name === "identity") return undefined;
  const format = FORMATS[name];
  if (format === undefined) {
    throw new HttpError("UNKNOWN_ENCODING", "the response has an unknown content encoding");
  }
  return (body) =>
    body.pipeThrough<Uint8Array>(
      new DecompressionStream(format as CompressionFormat) as ReadableWritablePair<
        Uint8Array,
        Uint8Array
      >,
    );
}
