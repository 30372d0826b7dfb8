import { isFields } from "../../lib/json.ts";
import { type ChatEvent, ProviderFailure } from "../interface.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import type { StreamDecoder } from "../typed-stream-reader.ts";
import type { AnswerEvents } from "./answer-events.ts";

/** Longest line, in bytes. A longer line means that the provider is broken. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;
const LINE_FEED = 0x0a;

/**
 * Reads Ollama's streams, with one JSON object per line (https://docs.ollama.com/api/streaming). An answer
 * ends with the object that has `done`. A stream that breaks off earlier has no finish event.
 */
export class LineDecoder implements StreamDecoder {
  readonly #answer: AnswerEvents;
  /** The incomplete line. Its first `#length` bytes are in use. */
  #buffer = Buffer.alloc(0);
  #length = 0;

  constructor(answer: AnswerEvents) {
    this.#answer = answer;
  }

  get isOver(): boolean {
    return this.#answer.isDone;
  }

  push(bytes: Uint8Array, events: ChatEvent[]): void {
    let start = 0;
    for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED, start)) {
      this.#append(bytes.subarray(start, end));
      this.#take(events);
      start = end + 1;
    }
    this.#append(bytes.subarray(start));
  }

  end(events: ChatEvent[]): void {
    this.#take(events);
  }

  /**
   * Copies a piece to the buffer: the HTTP client can reuse the memory of a piece, and pieces can be single
   * bytes.
   */
  #append(piece: Uint8Array): void {
    const neededBytes = this.#length + piece.length;
    if (neededBytes > MAX_LINE_BYTES) {
      throw new ProviderFailure("unavailable", "the provider sent a line that is too long");
    }
    if (neededBytes > this.#buffer.length) {
      const larger = Buffer.allocUnsafe(Math.max(neededBytes, 2 * this.#buffer.length));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    this.#buffer.set(piece, this.#length);
    this.#length = neededBytes;
  }

  #take(events: ChatEvent[]): void {
    const line = this.#buffer.toString("utf8", 0, this.#length).trim();
    this.#length = 0;
    if (line === "" || this.#answer.isDone) return;
    const answer = parsedAnswer(line);
    if (!isFields(answer)) {
      throw new ProviderFailure(
        "unavailable",
        "the provider's stream contains a value that is not an object",
      );
    }
    this.#answer.add(answer, events);
  }
}
