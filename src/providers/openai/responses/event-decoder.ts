import { isFields } from "../../../lib/json.ts";
import type { ChatEvent, ProviderFailure, ReasoningDetail } from "../../interface.ts";
import { SseDecoder } from "../../sse-decoder.ts";
import { brokenAnswer } from "../../transport/call-failures.ts";
import type { FailureContext } from "../../transport/status-failure.ts";
import { eventOf } from "../../transport/stream-event.ts";
import { failureOfErrorBody } from "../failure-mapping.ts";
import {
  annotationOf,
  finishReason,
  isBilledSearch,
  isChatItem,
  isEmptyReasoning,
  logprobsOf,
  reportedUsage,
} from "./answer-parts.ts";
import { BLANK_LINE, encryptedDetail, summaryDetail, textDetail } from "./reasoning-items.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Largest single event. A provider that sends more is broken. The last event repeats the answer. */
const MAX_EVENT_BYTES = 32 * 1024 * 1024;
/** A reasoning item: its number among the items, and the current part of its summary. */
interface Thought {
  readonly item: number;
  part: number;
  hasText: boolean;
}

/** Events that are passed on under their names. */
const EVENT_NAME = /^response\.[a-z0-9_.]{1,100}$/;
const NO_PHASE: { readonly phase?: string } = Object.freeze({});

/** Each call has one choice. */
const choice = 0;

/**
 * Reads the events of OpenAI's Responses streams (https://platform.openai.com/docs/api-reference/responses-streaming).
 * Items that chats cannot express are passed on unchanged, with their events. Other events of unknown types are
 * skipped. An answer ends with `response.completed`, `.incomplete` or `.failed`. A stream that ends earlier has no
 * finish event.
 */
export class ResponsesDecoder extends SseDecoder {
  readonly #failureContext: () => FailureContext;
  /** Numbers of items, by their output index. */
  readonly #items = new Map<unknown, number>();
  readonly #calls = new Map<unknown, { readonly index: number; hasArguments: boolean }>();
  readonly #thoughts = new Map<unknown, Thought>();
  /** Numbers of items that chats cannot express, by their output index. */
  readonly #foreign = new Map<unknown, number>();
  readonly #phases = new Map<unknown, string>();
  /** Number of characters of each text so far. */
  readonly #textLengths = new Map<string, number>();
  #searches = 0;
  #isRefused = false;

  constructor(failureContext: () => FailureContext) {
    super(MAX_EVENT_BYTES);
    this.#failureContext = failureContext;
  }

  protected override take(data: string, events: ChatEvent[]): void {
    if (data === "") return;
    const event = eventOf(data);
    const { type, output_index: at, delta } = event;
    const text = typeof delta === "string" && delta !== "" ? delta : undefined;
    if (this.#foreign.has(at) && type !== "response.output_item.done") {
      this.#passOn(event, events);
      return;
    }
    switch (type) {
      case "response.output_item.added":
        if (isFields(event.item)) this.#beginItem(at, event.item, events);
        break;
      case "response.output_text.delta":
        if (text !== undefined) this.#say(event, text, events);
        break;
      case "response.output_text.done":
        this.#sayRest(event, events);
        break;
      case "response.output_text.annotation.added":
        this.#annotate(at, event.annotation, events);
        break;
      case "response.refusal.delta":
        this.#isRefused = true;
        if (text !== undefined) {
          events.push({ type: "refusal", choice, item: this.#items.get(at), text });
        }
        break;
      case "response.reasoning_summary_part.added":
        this.#beginPart(at, events);
        break;
      case "response.reasoning_summary_text.delta":
        this.#think(at, text, summaryDetail, events);
        break;
      case "response.reasoning_text.delta":
        this.#think(at, text, textDetail, events);
        break;
      case "response.function_call_arguments.delta":
        this.#addArguments(at, text, events);
        break;
      case "response.output_item.done":
        if (isFields(event.item)) this.#endItem(at, event.item, events);
        break;
      case "response.completed":
      case "response.incomplete":
      case "response.failed":
        if (isFields(event.response)) this.#finish(event.response, events);
        break;
      case "error":
        this.hasEnded = true;
        events.push({ type: "error", failure: this.#failureOf(event.error ?? event) });
    }
  }

  #say(
    { output_index: at, content_index: part, logprobs: raw }: Fields,
    text: string,
    events: ChatEvent[],
  ): void {
    const key = `${at}/${part}`;
    this.#textLengths.set(key, (this.#textLengths.get(key) ?? 0) + text.length);
    const logprobs = logprobsOf(raw);
    events.push({
      type: "text",
      choice,
      item: this.#items.get(at),
      text,
      ...this.#phaseOf(at),
      ...(logprobs !== undefined && { logprobs }),
    });
  }

  /** Emits the end of a text that was not sent in pieces. */
  #sayRest(event: Fields, events: ChatEvent[]): void {
    const { output_index: at, content_index: part, text } = event;
    const length = this.#textLengths.get(`${at}/${part}`) ?? 0;
    if (typeof text !== "string" || text.length <= length) return;
    this.#say({ output_index: at, content_index: part }, text.slice(length), events);
  }

  #beginItem(at: unknown, item: Fields, events: ChatEvent[]): void {
    const number = this.#items.size;
    this.#items.set(at, number);
    if (!isChatItem(item)) {
      this.#foreign.set(at, number);
      this.#addForeign(number, "added", item, events);
      return;
    }
    if (typeof item.phase === "string") this.#phases.set(at, item.phase);
    if (item.type === "reasoning")
      this.#thoughts.set(at, { item: number, part: 0, hasText: false });
    if (item.type !== "function_call") return;
    const { call_id: id, name, arguments: begun } = item;
    if (typeof id !== "string" || typeof name !== "string") {
      throw brokenAnswer("a call without id or name");
    }
    const index = this.#calls.size;
    this.#calls.set(at, { index, hasArguments: false });
    events.push({ type: "tool_call", choice, index, id, name });
    if (typeof begun === "string" && begun !== "") this.#addArguments(at, begun, events);
  }

  #addForeign(
    item: number,
    step: Extract<ChatEvent, { readonly type: "foreign_item" }>["step"],
    fields: Fields,
    events: ChatEvent[],
  ): void {
    events.push({ type: "foreign_item", choice, item, step, fields });
  }

  #passOn(event: Fields, events: ChatEvent[]): void {
    const { type, sequence_number: _, output_index: at, item_id: _id, ...fields } = event;
    if (typeof type !== "string" || !EVENT_NAME.test(type)) return;
    this.#addForeign(this.#foreign.get(at)!, { event: type }, fields, events);
  }

  #phaseOf(at: unknown): { readonly phase?: string } {
    const phase = this.#phases.get(at);
    return phase === undefined ? NO_PHASE : { phase };
  }

  #addArguments(at: unknown, text: string | undefined, events: ChatEvent[]): void {
    const call = this.#calls.get(at);
    if (call === undefined || text === undefined) return;
    call.hasArguments = true;
    events.push({ type: "tool_call", choice, index: call.index, arguments: text });
  }

  #beginPart(at: unknown, events: ChatEvent[]): void {
    const thought = this.#thoughts.get(at);
    if (thought?.hasText !== true) return;
    thought.part += 1;
    this.#think(at, BLANK_LINE, summaryDetail, events);
  }

  #think(
    at: unknown,
    text: string | undefined,
    detailOf: (index: number, text: string, part: number) => ReasoningDetail,
    events: ChatEvent[],
  ): void {
    const thought = this.#thoughts.get(at);
    if (thought === undefined || text === undefined) return;
    thought.hasText = true;
    const { item, part } = thought;
    events.push({ type: "reasoning", choice, item, text, details: [detailOf(item, text, part)] });
  }

  /** Emits the end of an item. Encrypted content at the start of an item is incomplete; at the end it is complete. */
  #endItem(at: unknown, item: Fields, events: ChatEvent[]): void {
    const foreign = this.#foreign.get(at);
    if (foreign !== undefined) {
      this.#foreign.delete(at);
      if (isBilledSearch(item)) this.#searches += 1;
      this.#addForeign(foreign, "done", item, events);
      return;
    }
    const call = this.#calls.get(at);
    if (call !== undefined && !call.hasArguments) {
      const { arguments: whole } = item;
      const text = typeof whole === "string" && whole !== "" ? whole : "{}";
      this.#addArguments(at, text, events);
    }
    const thought = this.#thoughts.get(at);
    if (thought === undefined) return;
    if (!thought.hasText && isEmptyReasoning(item)) {
      this.#addForeign(thought.item, "added", item, events);
      this.#addForeign(thought.item, "done", item, events);
      return;
    }
    const detail = encryptedDetail(thought.item, item);
    if (detail === undefined) return;
    events.push({ type: "reasoning", choice, item: thought.item, text: "", details: [detail] });
  }

  #annotate(at: unknown, raw: unknown, events: ChatEvent[]): void {
    const annotations = annotationOf(raw);
    if (annotations.length === 0) return;
    const item = this.#items.get(at);
    events.push({ type: "text", choice, item, text: "", ...this.#phaseOf(at), annotations });
  }

  #finish(response: Fields, events: ChatEvent[]): void {
    this.hasEnded = true;
    const usage = reportedUsage(response.usage, this.#searches);
    if (usage !== undefined) events.push({ type: "usage", usage });
    if (response.status === "failed" || isFields(response.error)) {
      events.push({ type: "error", failure: this.#failureOf(response.error) });
      return;
    }
    const hasCalls = this.#calls.size > 0;
    const reason = finishReason(response, { hasCalls, isRefused: this.#isRefused });
    events.push({ type: "finish", choice, reason });
  }

  #failureOf(error: unknown): ProviderFailure {
    return failureOfErrorBody({ error }, this.#failureContext());
  }
}
