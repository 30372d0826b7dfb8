import { yieldToEventLoop } from "../../../lib/yield-to-event-loop.ts";
import {
  type ChatEvent,
  nextPiece,
  type PieceReader,
  type ProviderFailure,
} from "../../../providers/interface.ts";
import { answerBytes } from "../../../providers/typed-answers.ts";
import { JsonScreen, type MatchedRule, textsOf } from "../../guardrails/screening/screen-json.ts";
import type { ScreeningRule } from "../../guardrails/screening/text-window.ts";
import { ChoiceScreen } from "./choice-screen.ts";

type Batch = readonly ChatEvent[];

/** Characters that are screened without a pause. The event loop runs between two pieces. */
const MAX_PIECE_CHARACTERS = 8_192;

export interface EventsGuard {
  readonly rules: readonly ScreeningRule[];
  /** True if a model decides about the whole text at its end. */
  readonly withholdsAll: boolean;
  /** Resolves with false if the text must not be sent. */
  moderate(text: string): Promise<boolean>;
  onMatches(hits: readonly MatchedRule[]): void;
  /** Returns the failure of a blocked answer. */
  onBlocked(): ProviderFailure;
}

/**
 * A reader of a screened answer. A blocked answer ends with an error, and the provider is then stopped.
 * Withheld text is counted when it arrives, because the provider has produced it.
 */
export class GuardedEvents implements PieceReader<Batch> {
  readonly #inner: PieceReader<Batch>;
  readonly #guard: EventsGuard;
  readonly #json: JsonScreen;
  readonly #choices = new Map<number, ChoiceScreen>();
  /** Events by choice that wait for the decision of a model. */
  readonly #waiting = new Map<number, ChatEvent[]>();
  #isOver = false;
  /** The last batch. */
  #end: Batch | undefined;

  constructor(inner: PieceReader<Batch>, guard: EventsGuard) {
    this.#inner = inner;
    this.#guard = guard;
    this.#json = new JsonScreen(guard.rules);
  }

  get isOver(): boolean {
    return this.#isOver && this.#end === undefined;
  }

  async read(): Promise<{ done: boolean; value?: Batch }> {
    const end = this.#end;
    this.#end = undefined;
    if (end !== undefined) return { done: false, value: end };
    while (!this.#isOver) {
      const batch = await nextPiece(this.#inner);
      if (batch === undefined) break;
      const events = await this.#screenBatch(batch);
      if (events.length > 0) return { done: false, value: events };
      if (this.#end !== undefined) return this.read();
    }
    this.#isOver = true;
    return { done: true };
  }

  cancel(): Promise<void> {
    this.#isOver = true;
    this.#end = undefined;
    return this.#inner.cancel();
  }

  async #screenBatch(batch: Batch): Promise<ChatEvent[]> {
    const shown: ChatEvent[] = [];
    for (const event of batch) {
      for (const piece of inPieces(event)) {
        const events = this.#screenEvent(piece);
        if (this.#guard.withholdsAll && !this.#json.isBlocked)
          shown.push(...(await this.#moderate(piece, events)));
        else shown.push(...events);
        if (this.#json.isBlocked) {
          this.#block();
          return shown.filter(({ type }) => type === "withheld" || type === "usage");
        }
        if (piece !== event) await yieldToEventLoop();
      }
    }
    this.#guard.onMatches(this.#json.hits);
    return shown;
  }

  /**
   * Prepares the error as the next batch. The answer has then begun before the error, so that it is charged.
   */
  #block(): void {
    this.#isOver = true;
    this.#guard.onMatches(this.#json.hits);
    this.#inner.cancel().catch(() => undefined);
    this.#end = [{ type: "error", failure: this.#guard.onBlocked() }];
  }

  #screenEvent(event: ChatEvent): ChatEvent[] {
    if (event.type === "usage" || event.type === "error" || event.type === "withheld") {
      return [event];
    }
    const choice = this.#choiceOf(event.choice);
    if (event.type === "finish") return [...choice.end(), event];
    if (event.type === "image") return [event];
    if (event.type === "tool_run") {
      const item = this.#json.walk(event.item, false) as typeof event.item;
      return [...choice.flush(), { ...event, item }];
    }
    if (event.type === "foreign_item") {
      const bytes = answerBytes(event);
      // A piece of a text that is also complete at the end of its item.
      if (bytes > 0) return [{ type: "withheld", choice: event.choice, bytes }];
      const fields = this.#json.walk(event.fields, false) as typeof event.fields;
      return [...choice.flush(), { ...event, fields }];
    }
    const withheld: ChatEvent = {
      type: "withheld",
      choice: event.choice,
      bytes: answerBytes(event),
    };
    if (event.type !== "tool_call") return [withheld, ...choice.add(event)];
    choice.addCall(event);
    return [withheld];
  }

  #choiceOf(index: number): ChoiceScreen {
    let choice = this.#choices.get(index);
    if (choice === undefined) {
      choice = new ChoiceScreen(index, this.#guard.rules, this.#json);
      this.#choices.set(index, choice);
    }
    return choice;
  }

  /**
   * Returns the events of one choice that can be sent: all of them at its end, or none. An answer that ends
   * with an error releases no text.
   */
  async #moderate(event: ChatEvent, events: readonly ChatEvent[]): Promise<ChatEvent[]> {
    const passed: ChatEvent[] = [];
    for (const pending of events) {
      if (pending.type === "withheld" || pending.type === "usage" || pending.type === "error")
        passed.push(pending);
      else this.#waitingOf(pending.choice).push(pending);
    }
    if (event.type !== "finish") return passed;
    const waiting = this.#waitingOf(event.choice);
    this.#waiting.delete(event.choice);
    if (await this.#guard.moderate(waiting.map(textOf).join(""))) return [...passed, ...waiting];
    this.#json.isBlocked = true;
    return passed;
  }

  #waitingOf(choice: number): ChatEvent[] {
    let waiting = this.#waiting.get(choice);
    if (waiting === undefined) {
      waiting = [];
      this.#waiting.set(choice, waiting);
    }
    return waiting;
  }
}

function textOf(event: ChatEvent): string {
  if (event.type === "tool_call") return `\n${event.name ?? ""} ${event.arguments ?? ""}`;
  if (event.type === "tool_run") return `\n${textsOf(event.item)}\n`;
  if (event.type === "foreign_item") return `\n${textsOf(event.fields)}\n`;
  return "text" in event ? event.text : "";
}

/** Splits a long text event, because a provider can send a long text in one event. */
function inPieces(event: ChatEvent): readonly ChatEvent[] {
  if (!("text" in event) || event.text.length <= MAX_PIECE_CHARACTERS) return [event];
  const { text } = event;
  const { length } = text;
  const pieces: ChatEvent[] = [];
  for (let at = 0; at < length; at += MAX_PIECE_CHARACTERS) {
    const isLast = at + MAX_PIECE_CHARACTERS >= length;
    const part = text.slice(at, at + MAX_PIECE_CHARACTERS);
    const { type, choice, item } = event;
    const header = item === undefined ? { type, choice } : { type, choice, item };
    pieces.push(isLast ? { ...event, text: part } : { ...header, text: part });
  }
  return pieces;
}
