import { EventSplitter, textOfLatin1 } from "../../lib/event-splitter.ts";
import type { ChatEvent, PieceReader } from "../interface.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { AnswerReader } from "./answer-reader.ts";

/** Pictures come whole, in base64. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** Throws ProviderFailure where the text is no JSON that can be passed on. */
export type ParseAnswer = (text: string) => unknown;

/** Reads a stream of `streamGenerateContent?alt=sse`, whose events are responses. */
export class GeminiEventReader implements PieceReader<readonly ChatEvent[]> {
  readonly #bytes: PieceReader;
  readonly #answer: AnswerReader;
  readonly #parse: ParseAnswer;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  #isOver = false;

  constructor(bytes: PieceReader, answer: AnswerReader, parse: ParseAnswer) {
    this.#bytes = bytes;
    this.#answer = answer;
    this.#parse = parse;
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
    // Behind an error nothing more is expected.
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
    // Some proxies end every stream as OpenAI does.
    if (this.#isOver || data === "[DONE]") return [];
    let response: unknown;
    try {
      response = this.#parse(textOfLatin1(data));
    } catch (failure) {
      return [{ type: "error", failure: failure as ReturnType<typeof brokenAnswer> }];
    }
    return this.#answer.read(response);
  }

  #end(): void {
    this.#isOver = true;
    this.cancel().catch(() => undefined);
  }
}

/** Events that are there already. */
export class ReadyEvents implements PieceReader<readonly ChatEvent[]> {
  #events: readonly ChatEvent[] | undefined;

  constructor(events: readonly ChatEvent[]) {
    this.#events = events;
  }

  get isOver(): boolean {
    return this.#events === undefined;
  }

  async read(): Promise<{ done: boolean; value?: readonly ChatEvent[] }> {
    const value = this.#events;
    this.#events = undefined;
    return value === undefined ? { done: true } : { done: false, value };
  }

  async cancel(): Promise<void> {
    this.#events = undefined;
  }
}
