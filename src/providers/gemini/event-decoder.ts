import { EventSplitter, textOfLatin1 } from "../../lib/event-splitter.ts";
import type { ChatEvent, ProviderFailure } from "../interface.ts";
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
    try {
      this.#splitter.end((data) => this.#take(data, events));
    } catch (error) {
      // The beginning of another event after a finished answer is ignored.
      if (!this.#answer.isFinished) throw error;
    }
  }

  #take(data: string, events: ChatEvent[]): void {
    // Some proxies end every stream with OpenAI's end marker.
    if (data === "[DONE]") return;
    let failure: ProviderFailure | undefined;
    for (const event of this.#answer.read(parsedAnswer(textOfLatin1(data)))) {
      if (event.type === "error") failure ??= event.failure;
      else events.push(event);
    }
    // Google sends nothing after an error, but the response with the error may report usage.
    if (failure !== undefined) throw failure;
  }
}
