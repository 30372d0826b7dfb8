import type { ChatEvent, ReasoningDetail } from "../../../providers/interface.ts";
import { type JsonScreen, screenJson } from "../../guardrails/screening/screen-json.ts";
import {
  type Released,
  type ScreeningRule,
  TextWindow,
} from "../../guardrails/screening/text-window.ts";

type TextEvent = Extract<ChatEvent, { readonly type: "text" | "reasoning" | "refusal" }>;
type CallEvent = Extract<ChatEvent, { readonly type: "tool_call" }>;
type TextKind = TextEvent["type"];

/** The text of one event, while part of it is withheld. */
interface Segment {
  readonly event: TextEvent;
  left: number;
}

interface PendingCall {
  readonly first: CallEvent;
  json: string;
}

/**
 * Screens one choice of a streamed answer. Texts are released when no rule can match in them any longer. Tool
 * calls and reasoning details are released when they are complete.
 */
export class ChoiceScreen {
  readonly #choice: number;
  readonly #rules: readonly ScreeningRule[];
  readonly #json: JsonScreen;
  readonly #windows = new Map<TextKind, TextWindow>();
  #kind: TextKind | undefined;
  #segments: Segment[] = [];
  #details: ReasoningDetail[] = [];
  #isReasoningRedacted = false;
  /** Tool calls by index, in the order in which they began. */
  readonly #calls = new Map<number, PendingCall>();

  /** @param json collects the matches */
  constructor(choice: number, rules: readonly ScreeningRule[], json: JsonScreen) {
    this.#choice = choice;
    this.#rules = rules;
    this.#json = json;
  }

  /** Adds an event. Returns the events that can be released now. */
  add(event: TextEvent): ChatEvent[] {
    const ended = this.#kind === event.type ? [] : this.flush();
    this.#kind = event.type;
    if (event.type === "reasoning") this.#details.push(...(event.details ?? []));
    this.#segments.push({ event, left: event.text.length });
    const window = this.#windowOf(event.type);
    return [...ended, ...this.#emit(window, window.push(event.text))];
  }

  addCall(event: CallEvent): void {
    const held = this.#calls.get(event.index);
    if (held === undefined) {
      this.#calls.set(event.index, { first: event, json: event.arguments ?? "" });
    } else held.json += event.arguments ?? "";
  }

  /** Returns the remaining events of the current kind, because the kind or the answer has ended. */
  flush(): ChatEvent[] {
    const kind = this.#kind;
    this.#kind = undefined;
    const events: ChatEvent[] = [];
    if (kind !== undefined) {
      const window = this.#windowOf(kind);
      events.push(...this.#emit(window, window.end()));
    }
    if (kind === "reasoning") events.push(...this.#takeDetails());
    if (kind !== "text") events.push(...this.#takeCalls());
    return this.#json.isBlocked ? [] : events;
  }

  /** Returns the remaining events and the tool calls of the choice. */
  end(): ChatEvent[] {
    const events = [...this.flush(), ...this.#takeCalls()];
    return this.#json.isBlocked ? [] : events;
  }

  #windowOf(kind: TextKind): TextWindow {
    let window = this.#windows.get(kind);
    if (window === undefined) {
      window = new TextWindow(this.#rules, this.#json.note);
      this.#windows.set(kind, window);
    }
    return window;
  }

  #emit(window: TextWindow, released: readonly Released[]): ChatEvent[] {
    if (window.isBlocked) this.#json.isBlocked = true;
    const events: ChatEvent[] = [];
    const done = () => {
      while (this.#segments[0]?.left === 0) this.#annotate(this.#segments.shift()!.event, events);
    };
    done();
    for (const { length, text } of released) {
      const isPassed = text.length === length;
      if (!isPassed && this.#segments[0]?.event.type === "reasoning") {
        this.#isReasoningRedacted = true;
      }
      for (let consumed = 0; consumed < length; ) {
        const segment = this.#segments[0]!;
        const count = Math.min(segment.left, length - consumed);
        const rest = consumed === 0 ? text : "";
        add(events, segment.event, isPassed ? text.slice(consumed, consumed + count) : rest);
        consumed += count;
        segment.left -= count;
        done();
      }
    }
    return events;
  }

  #annotate(event: TextEvent, events: ChatEvent[]): void {
    if (event.type !== "text" || event.annotations === undefined) return;
    const annotations = event.annotations.map((annotation) => this.#json.walk(annotation, false));
    const { choice, item } = event;
    const position = item === undefined ? { choice } : { choice, item };
    events.push({ type: "text", ...position, text: "", annotations });
  }

  /**
   * Returns the reasoning details, or none if the reasoning was redacted. The details would restore the
   * redacted text, and their signatures cover the whole text.
   */
  #takeDetails(): ChatEvent[] {
    const details = this.#details;
    this.#details = [];
    const isRedacted = this.#isReasoningRedacted;
    this.#isReasoningRedacted = false;
    const [first] = details;
    if (first === undefined || isRedacted) return [];
    const joined = details.map((detail) =>
      "text" in detail ? detail.text : "summary" in detail ? detail.summary : "",
    );
    const screened = screenJson(joined.join(""), this.#rules);
    for (const hit of screened.hits) this.#json.add(hit);
    if (screened.isBlocked) this.#json.isBlocked = true;
    if (screened.hits.length > 0) return [];
    return [{ type: "reasoning", choice: this.#choice, text: "", details }];
  }

  #takeCalls(): ChatEvent[] {
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    return calls.map(({ first, json }) => ({
      ...first,
      ...(first.name !== undefined && { name: this.#json.text(first.name) }),
      arguments: this.#json.jsonText(json),
    }));
  }
}

function add(events: ChatEvent[], { type, choice, item }: TextEvent, text: string): void {
  if (text === "") return;
  events.push(item === undefined ? { type, choice, text } : { type, choice, item, text });
}
