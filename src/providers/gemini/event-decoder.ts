import { EventSplitter, textOfLatin1 } from "../../lib/event-splitter.ts";
import type { ChatEvent } from "../interface.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import type { StreamDecoder } from "../typed-stream-reader.ts";
import type { AnswerReader } from "./answer-reader.ts";

/** Largest single event, in bytes. An event contains whole images in base64. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** Reads a stream of `streamGenerateContent?alt=sse`. Its events are responses. It has no end marker. */
export class GeminiDecoder implements StreamDecoder {
  readonly isOver = false;
  readonly #answer: AnswerReader;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);

  constructor(answer: AnswerReader) {
    this.#answer = answer;
  }

  push(bytes: Uint8Array, events: ChatEvent[]): void {
    this.#splitter.push(bytes, (data) => this.#take(data, events));
  }

  end(events: ChatEvent[]): void {
    this.#splitter.end((data) => this.#take(data, events));
  }

  #take(data: string, events: ChatEvent[]): void {
    // Some proxies end every stream with OpenAI's end marker.
    if (data === "[DONE]") return;
    for (const event of this.#answer.read(parsedAnswer(textOfLatin1(data)))) {
      // Google sends nothing after an error.
      if (event.type === "error") throw event.failure;
      events.push(event);
    }
  }
}
