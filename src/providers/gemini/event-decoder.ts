import { textOfLatin1 } from "../../lib/event-splitter.ts";
import type { ChatEvent, ProviderFailure } from "../interface.ts";
import { SseDecoder } from "../sse-decoder.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import type { AnswerReader } from "./answer-reader.ts";

/** Largest single event, in bytes. An event contains whole images in base64. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** Reads a stream of `streamGenerateContent?alt=sse`. Its events are responses. It has no end marker. */
export class GeminiDecoder extends SseDecoder {
  readonly #answer: AnswerReader;

  constructor(answer: AnswerReader) {
    super(MAX_EVENT_BYTES);
    this.#answer = answer;
  }

  override end(events: ChatEvent[]): void {
    try {
      super.end(events);
    } catch (error) {
      // The beginning of another event after a finished answer is ignored.
      if (!this.#answer.isFinished) throw error;
    }
  }

  protected override take(data: string, events: ChatEvent[]): void {
    let failure: ProviderFailure | undefined;
    for (const event of this.#answer.read(parsedAnswer(textOfLatin1(data)))) {
      if (event.type === "error") failure ??= event.failure;
      else events.push(event);
    }
    // Google sends nothing after an error, but the response with the error may report usage.
    if (failure !== undefined) throw failure;
  }
}
