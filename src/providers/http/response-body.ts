import type { PieceReader } from "../interface.ts";

/** Bytes that may lie unread before the connection is paused. */
export const MAX_UNREAD_BYTES = 262_144;

/** Where a body comes from: the connection, as the body sees it. */
export interface BodySource {
  pause(): void;
  resume(): void;
  /** Nobody will read the rest. */
  abandon(): void;
}

type PieceRead = { done: boolean; value?: Uint8Array | undefined };

/** The bytes of one response, pushed by the connection and pulled by one reader: itself, a stream, or a text. */
export class ResponseBody implements PieceReader {
  readonly #source: BodySource;
  #pieces: Buffer[] = [];
  #unreadBytes = 0;
  #isPaused = false;
  #hasEnded = false;
  #isTaken = false;
  #hasFailed = false;
  #failure: unknown;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  #isPulled = false;
  #reading: { resolve(read: PieceRead): void; reject(failure: unknown): void } | undefined;
  #isCancelled = false;
  #text: { resolve(text: string): void; reject(failure: unknown): void } | undefined;

  constructor(source: BodySource) {
    this.#source = source;
  }

  /** `piece` is handed on as it is: it must not be written to afterwards. */
  push(piece: Buffer): void {
    if (this.#isCancelled) return;
    if (this.#reading !== undefined) {
      this.#endReading().resolve({ done: false, value: piece });
      return;
    }
    if (this.#isPulled) {
      this.#isPulled = false;
      this.#controller!.enqueue(piece);
      return;
    }
    this.#pieces.push(piece);
    this.#unreadBytes += piece.length;
    if (this.#text !== undefined || this.#isPaused || this.#unreadBytes <= MAX_UNREAD_BYTES) return;
    this.#isPaused = true;
    this.#source.pause();
  }

  end(): void {
    this.#hasEnded = true;
    if (this.#reading !== undefined) this.#endReading().resolve({ done: true });
    this.#text?.resolve(this.#takeText());
    if (this.#controller !== undefined && this.#pieces.length === 0) this.#controller.close();
  }

  /** What came before the failure is still read first by a stream. */
  fail(failure: unknown): void {
    if (this.#hasEnded || this.#hasFailed) return;
    this.#hasFailed = true;
    this.#failure = failure;
    if (this.#reading !== undefined) this.#endReading().reject(failure);
    this.#text?.reject(failure);
    if (this.#pieces.length === 0) this.#controller?.error(failure);
  }

  /** Fails at once, whatever lies unread. */
  abort(reason: unknown): void {
    this.#pieces = [];
    this.#unreadBytes = 0;
    this.fail(reason);
  }

  text(): Promise<string> {
    if (this.#isTaken) return Promise.reject(new TypeError("the body is already being read"));
    this.#isTaken = true;
    if (this.#hasFailed) return Promise.reject(this.#failure);
    if (this.#hasEnded) return Promise.resolve(this.#takeText());
    return new Promise((resolve, reject) => {
      this.#text = { resolve, reject };
      this.#resume();
    });
  }

  /** All of it, where it has come; the caller is its reader then. */
  wholeText(): string | undefined {
    if (!this.#hasEnded || this.#isTaken) return undefined;
    this.#isTaken = true;
    return this.#takeText();
  }

  /** The caller becomes the reader of the pieces. */
  reader(): PieceReader {
    if (this.#isTaken) throw new TypeError("the body is already being read");
    this.#isTaken = true;
    return this;
  }

  take(): Uint8Array | undefined {
    if (this.#pieces.length === 0) return undefined;
    const piece = this.#takePieces();
    this.#resume();
    return piece;
  }

  get isOver(): boolean {
    return this.#hasEnded && this.#pieces.length === 0;
  }

  /** Only behind the answer to the last one. */
  read(): Promise<PieceRead> {
    const value = this.take();
    if (value !== undefined) return Promise.resolve({ done: false, value });
    if (this.#hasFailed) return Promise.reject(this.#failure);
    if (this.#hasEnded || this.#isCancelled) return Promise.resolve({ done: true });
    return new Promise((resolve, reject) => {
      this.#reading = { resolve, reject };
      this.#resume();
    });
  }

  cancel(): Promise<void> {
    this.#isCancelled = true;
    this.#pieces = [];
    this.#unreadBytes = 0;
    if (this.#reading !== undefined) this.#endReading().resolve({ done: true });
    if (!this.#hasEnded && !this.#hasFailed) this.#source.abandon();
    return Promise.resolve();
  }

  #endReading() {
    const reading = this.#reading!;
    this.#reading = undefined;
    return reading;
  }

  stream(): ReadableStream<Uint8Array> {
    if (this.#isTaken) throw new TypeError("the body is already being read");
    this.#isTaken = true;
    return new ReadableStream<Uint8Array>(
      {
        pull: (controller) => this.#pull(controller),
        cancel: () => {
          this.#pieces = [];
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
    if (this.#pieces.length > 0) {
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
    const pieces = this.#pieces;
    this.#pieces = [];
    this.#unreadBytes = 0;
    return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  }

  #takeText(): string {
    if (this.#pieces.length === 0) return "";
    const bytes = this.#takePieces();
    const hasMark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
    const start = hasMark ? 3 : 0;
    return bytes.toString("utf8", start);
  }
}
