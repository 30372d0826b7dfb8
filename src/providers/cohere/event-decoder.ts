import { isFields } from "../../lib/json.ts";
import { type ChatEvent, ProviderFailure } from "../interface.ts";
import { SseDecoder } from "../sse-decoder.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { eventOf } from "../transport/stream-event.ts";
import { CitedText } from "./citations.ts";
import { failureInside, failureOfEnd, finishReason } from "./failure-mapping.ts";
import { planDetail, thinkingDetail } from "./reasoning-details.ts";
import { reportedUsage } from "./reported-usage.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Largest single event, in bytes. A larger event means that the provider is broken. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;
/** Cohere sends one choice per request. */
const choice = 0;

interface OpenCall {
  readonly index: number;
  hasArguments: boolean;
}

/**
 * Reads the events of Cohere's streams (https://docs.cohere.com/v2/docs/streaming). Skips events of unknown
 * types. An answer ends at `message-end`; a stream that breaks off earlier has no finish event. Passes the
 * arguments of calls on unchanged, even if they are not JSON, and sends `{}` for a call without arguments.
 */
export class CohereDecoder extends SseDecoder {
  readonly #failureContext: () => FailureContext;
  readonly #text = new CitedText();
  /** Open calls by Cohere's index. A second call with the same index replaces the first. */
  readonly #calls = new Map<unknown, OpenCall>();
  #callCount = 0;
  /** Index of the last reasoning detail, and the block that it belongs to. */
  #detail = -1;
  #thoughtBlock: unknown;

  constructor(failureContext: () => FailureContext) {
    super(MAX_EVENT_BYTES);
    this.#failureContext = failureContext;
  }

  protected override take(data: string, events: ChatEvent[]): void {
    if (data === "") return;
    const event = eventOf(data);
    const failure = failureInside(event, this.#failureContext());
    if (failure !== undefined) {
      events.push({ type: "error", failure });
      return;
    }
    const delta = isFields(event.delta) ? event.delta : {};
    const message = isFields(delta.message) ? delta.message : {};
    switch (event.type) {
      case "content-start":
      case "content-delta":
        if (isFields(message.content)) this.#takeContent(event.index, message.content, events);
        break;
      case "tool-plan-delta":
        this.#takeThought("plan", message.tool_plan, planDetail, events);
        break;
      case "tool-call-start":
        this.#beginCall(event.index, message.tool_calls, events);
        break;
      case "tool-call-delta":
        if (isFields(message.tool_calls)) {
          this.#takeArguments(event.index, message.tool_calls.function, events);
        }
        break;
      case "tool-call-end":
        this.#endCall(event.index, events);
        break;
      case "citation-start":
        this.#cite(message.citations, events);
        break;
      case "message-end":
        this.#finish(delta, events);
    }
  }

  #takeContent(block: unknown, { text, thinking }: Fields, events: ChatEvent[]): void {
    this.#takeThought(block, thinking, thinkingDetail, events);
    if (typeof text !== "string" || text === "") return;
    this.#text.add(block, text);
    events.push({ type: "text", choice, text });
  }

  #takeThought(
    block: unknown,
    text: unknown,
    detailOf: typeof thinkingDetail,
    events: ChatEvent[],
  ): void {
    if (typeof text !== "string" || text === "") return;
    if (this.#detail < 0 || this.#thoughtBlock !== block) this.#detail++;
    this.#thoughtBlock = block;
    events.push({ type: "reasoning", choice, text, details: [detailOf(this.#detail, text)] });
  }

  #beginCall(callIndex: unknown, call: unknown, events: ChatEvent[]): void {
    const { id, function: calledFunction } = isFields(call) ? call : {};
    const name = isFields(calledFunction) ? calledFunction.name : undefined;
    if (typeof id !== "string" || typeof name !== "string") {
      throw new ProviderFailure("unavailable", "the provider sent a call without id or name");
    }
    this.#endCall(callIndex, events);
    const index = this.#callCount++;
    this.#calls.set(callIndex, { index, hasArguments: false });
    events.push({ type: "tool_call", choice, index, id, name });
    this.#takeArguments(callIndex, calledFunction, events);
  }

  #takeArguments(callIndex: unknown, calledFunction: unknown, events: ChatEvent[]): void {
    const text = isFields(calledFunction) ? calledFunction.arguments : undefined;
    const call = this.#calls.get(callIndex);
    if (call === undefined || typeof text !== "string" || text === "") return;
    call.hasArguments = true;
    events.push({ type: "tool_call", choice, index: call.index, arguments: text });
  }

  #endCall(callIndex: unknown, events: ChatEvent[]): void {
    const call = this.#calls.get(callIndex);
    if (call !== undefined && !call.hasArguments) {
      this.#takeArguments(callIndex, { arguments: "{}" }, events);
    }
  }

  #cite(citations: unknown, events: ChatEvent[]): void {
    for (const citation of Array.isArray(citations) ? citations : [citations]) {
      const annotations = this.#text.annotationsOf(citation);
      if (annotations.length > 0) events.push({ type: "text", choice, text: "", annotations });
    }
  }

  #finish({ usage: raw, finish_reason: reason, error }: Fields, events: ChatEvent[]): void {
    this.hasEnded = true;
    for (const callIndex of this.#calls.keys()) this.#endCall(callIndex, events);
    const usage = reportedUsage(raw);
    if (usage !== undefined) events.push({ type: "usage", usage });
    const failure = failureOfEnd(reason, error, this.#failureContext());
    if (failure !== undefined) events.push({ type: "error", failure });
    else if (typeof reason === "string") {
      events.push({ type: "finish", choice, reason: finishReason(reason, this.#callCount > 0) });
    }
  }
}
