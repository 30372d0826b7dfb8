import { isFields } from "../../lib/json.ts";
import { type ChatEvent, ProviderFailure } from "../interface.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import type { StreamDecoder } from "../typed-stream-reader.ts";
import type { AnswerEvents } from "./answer-events.ts";

/** The longest line, in bytes: beyond that a provider is broken. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;
const LINE_FEED = 0x0a;

/**
 * Reads Ollama's streams, an object in JSON on each line (https://docs.ollama.com/api/streaming). An answer is over
 * with the object that says `done`; a stream that ends before lacks its finish.
 */
export class LineDecoder implements StreamDecoder {
  readonly #answer: AnswerEvents;
  /** The beginning of a line; its first `#length` bytes are in use. */
  #held = Buffer.alloc(0);
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
      this.#keep(bytes.subarray(start, end));
      this.#take(events);
      start = end + 1;
    }
    this.#keep(bytes.subarray(start));
  }

  end(events: ChatEvent[]): void {
    this.#take(events);
  }

  /** Copies: the client of the connection may use its memory again, and pieces may be single bytes. */
  #keep(piece: Uint8Array): void {
    const neededBytes = this.#length + piece.length;
    if (neededBytes > MAX_LINE_BYTES) {
      throw new ProviderFailure("unavailable", "the provider sent a line that is too long");
    }
    if (neededBytes > this.#held.length) {
      const larger = Buffer.allocUnsafe(Math.max(neededBytes, 2 * this.#held.length));
      this.#held.copy(larger, 0, 0, this.#length);
      this.#held = larger;
    }
    this.#held.set(piece, this.#length);
    this.#length = neededBytes;
  }

  #take(events: ChatEvent[]): void {
    const line = this.#held.toString("utf8", 0, this.#length).trim();
    this.#length = 0;
    if (line === "" || this.#answer.isDone) return;
    const answer = parsedAnswer(line);
    if (!isFields(answer)) {
      throw new ProviderFailure("unavailable", "the provider's stream holds what is no object");
    }
    this.#answer.add(answer, events);
  }
}
