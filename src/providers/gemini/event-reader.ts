import { EventSplitter, textOfLatin1 } from "../../lib/event-splitter.ts";
import type { ChatEvent, PieceReader } from "../interface.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { AnswerReader } from "./answer-reader.ts";

/** Largest single event, in bytes. An event contains whole images in base64. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** Reads a stream of `streamGenerateContent?alt=sse`. Its events are responses. */
export class GeminiEventReader implements PieceReader<readonly ChatEvent[]> {
  readonly #bytes: PieceReader;
  readonly #answer: AnswerReader;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  #isOver = false;

  constructor(bytes: PieceReader, answer: AnswerReader) {
    this.#bytes = bytes;
    this.#answer = answer;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  async read(): Promise<{ done: boolean; value?: readonly ChatEvent[] }> {
    if (this.#isOver) return { done: true };
    const piece = await this.#bytes.read();
    const events: ChatEvent[] = [];
    const take = (data: string) => events.push(...this.#eventsOf(data));
    if (piece.done) {
      this.#isOver = true;
      this.#splitter.end(take);
    } else if (piece.value !== undefined) this.#split(piece.value, take, events);
    // Google sends nothing after an error.
    if (events.some(({ type }) => type === "error")) this.#end();
    return { done: false, value: events };
  }

  cancel(): Promise<void> {
    return this.#bytes.cancel();
  }

  #split(bytes: Uint8Array, take: (data: string) => void, events: ChatEvent[]): void {
    try {
      this.#splitter.push(bytes, take);
    } catch {
      events.push({ type: "error", failure: brokenAnswer("an event that is too large") });
    }
  }

  #eventsOf(data: string): ChatEvent[] {
    // Some proxies end every stream with OpenAI's end marker.
    if (this.#isOver || data === "[DONE]") return [];
    try {
      return this.#answer.read(parsedAnswer(textOfLatin1(data)));
    } catch (failure) {
      return [{ type: "error", failure: failure as ReturnType<typeof brokenAnswer> }];
    }
  }

  #end(): void {
    this.#isOver = true;
    this.cancel().catch(() => undefined);
  }
}
