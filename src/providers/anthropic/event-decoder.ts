import { isFields } from "../../lib/json.ts";
import { type ChatEvent, ProviderFailure, type ReasoningDetail } from "../interface.ts";
import { SseDecoder } from "../sse-decoder.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { eventOf } from "../transport/stream-event.ts";
import { CarriedThinking } from "./carried-thinking.ts";
import { annotationsOf } from "./citations.ts";
import { failureOfErrorBody } from "./failure-mapping.ts";
import { redactedDetail, thinkingDetail } from "./reasoning-details.ts";
import { ReportedUsage } from "./reported-usage.ts";
import { finishReason, refusalText } from "./stop-reason.ts";
import { JSON_TOOL } from "./tools.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Largest single event, in bytes. A larger event means that the provider is broken. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;
/** Anthropic sends one choice per request. */
const choice = 0;

/** A block of the answer that has begun and not yet ended. */
type OpenBlock =
  | { readonly type: "call"; readonly index: number; hasInput: boolean; readonly input: unknown }
  /** The tool call whose input is the answer. */
  | { readonly type: "answer"; hasInput: boolean; readonly input: unknown }
  | { readonly type: "text"; readonly start: number; readonly citations: unknown[] };

/**
 * Reads the events of a stream as typed events:
 * https://platform.claude.com/docs/en/build-with-claude/streaming. Skips events, blocks and deltas of unknown
 * types, as that page demands. The stream ends at `message_stop`. A stream that breaks off earlier has no
 * finish event, unless `message_delta` brought it. Passes the input of tools on unchanged, even if it is not
 * JSON.
 */
export class MessagesDecoder extends SseDecoder {
  readonly #answersByTool: boolean;
  readonly #failureContext: () => FailureContext;
  readonly #usage = new ReportedUsage();
  /** Open blocks by their index. */
  readonly #open = new Map<unknown, OpenBlock>();
  readonly #carried = new CarriedThinking();
  #calls = 0;
  /** Length of the text so far, in UTF-16 code units. */
  #textLength = 0;
  /** The events of the current piece. */
  #events: ChatEvent[] = [];
  #hasBegun = false;

  constructor(answersByTool: boolean, failureContext: () => FailureContext) {
    super(MAX_EVENT_BYTES);
    this.#answersByTool = answersByTool;
    this.#failureContext = failureContext;
  }

  protected override take(data: string, events: ChatEvent[]): void {
    if (data === "") return;
    this.#events = events;
    const event = eventOf(data);
    switch (event.type) {
      case "message_start":
        this.#begin();
        if (isFields(event.message)) this.#takeUsage(event.message.usage, "begin");
        break;
      case "content_block_start":
        if (isFields(event.content_block)) this.#beginBlock(event.index, event.content_block);
        break;
      case "content_block_delta":
        if (isFields(event.delta)) this.#takeDelta(event.index, event.delta);
        break;
      case "content_block_stop":
        this.#endBlock(event.index);
        break;
      case "message_delta":
        this.#endMessage(event);
        break;
      case "message_stop":
        this.hasEnded = true;
        break;
      case "error":
        this.#takeUsage(event.usage);
        this.#events.push({
          type: "error",
          failure: failureOfErrorBody(event, this.#failureContext()),
        });
        break;
    }
  }

  /** Throws ProviderFailure at a second `message_start`: the events after it belong to a different answer. */
  #begin(): void {
    if (this.#hasBegun) throw brokenAnswer("a second message_start");
    this.#hasBegun = true;
  }

  #beginBlock(index: unknown, block: Fields): void {
    const { type, text, thinking, data, input } = block;
    if (type === "text") {
      this.#open.set(index, { type: "text", start: this.#textLength, citations: [] });
      this.#addText(text);
    } else if (type === "thinking") this.#addThinking(index, thinking);
    else if (type === "redacted_thinking" && typeof data === "string") {
      this.#carried.addRedacted(validIndex(index), data);
      this.#addDetail("", redactedDetail(validIndex(index), data));
    } else if (type !== "tool_use") return;
    else if (this.#answersByTool && block.name === JSON_TOOL) {
      this.#open.set(index, { type: "answer", hasInput: false, input });
    } else this.#beginCall(index, block);
  }

  #beginCall(blockIndex: unknown, { id, name, input }: Fields): void {
    if (typeof id !== "string" || typeof name !== "string") {
      throw new ProviderFailure("unavailable", "the provider sent a call without id or name");
    }
    const index = this.#calls++;
    this.#open.set(blockIndex, { type: "call", index, hasInput: false, input });
    const extraContent = this.#carried.take();
    const carried = extraContent === undefined ? {} : { extraContent };
    this.#events.push({ type: "tool_call", choice, index, id, name, ...carried });
  }

  #takeDelta(index: unknown, delta: Fields): void {
    switch (delta.type) {
      case "text_delta":
        this.#addText(delta.text);
        break;
      case "thinking_delta":
        this.#addThinking(index, delta.thinking);
        break;
      case "signature_delta":
        if (typeof delta.signature === "string" && delta.signature !== "") {
          this.#carried.add(validIndex(index), "", delta.signature);
          this.#addDetail("", thinkingDetail(validIndex(index), { signature: delta.signature }));
        }
        break;
      case "citations_delta":
        this.#addCitation(index, delta.citation);
        break;
      case "input_json_delta":
        this.#addInput(this.#open.get(index), delta.partial_json);
        break;
    }
  }

  /** Adds input to a call of the caller's tools or to an answer by tool. Skips the input of other blocks. */
  #addInput(block: OpenBlock | undefined, json: unknown): void {
    if (block === undefined || block.type === "text") return;
    if (typeof json !== "string" || json === "") return;
    block.hasInput = true;
    if (block.type === "answer") this.#addText(json);
    else this.#events.push({ type: "tool_call", choice, index: block.index, arguments: json });
  }

  /** Ends a block. Some servers send the whole input of a call with the start of its block. */
  #endBlock(index: unknown): void {
    const block = this.#open.get(index);
    if (block === undefined) return;
    this.#open.delete(index);
    if (block.type === "text") {
      this.#addAnnotations(block.citations, block.start);
      return;
    }
    const isStated = isFields(block.input) && Object.keys(block.input).length > 0;
    const rest = isStated || block.type === "answer" ? JSON.stringify(block.input ?? {}) : "";
    if (!block.hasInput) this.#addInput(block, rest);
  }

  #addCitation(index: unknown, citation: unknown): void {
    const block = this.#open.get(index);
    if (block?.type === "text") block.citations.push(citation);
  }

  /** Adds the annotations at the end of a block, because only then the end of the passage is known. */
  #addAnnotations(citations: readonly unknown[], start: number): void {
    const annotations = annotationsOf(citations, start, this.#textLength);
    if (annotations.length === 0) return;
    this.#events.push({ type: "text", choice, text: "", annotations });
  }

  #addText(text: unknown): void {
    if (typeof text !== "string" || text === "") return;
    this.#textLength += text.length;
    this.#events.push({ type: "text", choice, text });
  }

  #addThinking(index: unknown, text: unknown): void {
    if (typeof text === "string" && text !== "") {
      this.#carried.add(validIndex(index), text, "");
      this.#addDetail(text, thinkingDetail(validIndex(index), { text }));
    }
  }

  #addDetail(text: string, detail: ReasoningDetail): void {
    this.#events.push({ type: "reasoning", choice, text, details: [detail] });
  }

  #endMessage({ delta, usage }: Fields): void {
    const fields = isFields(delta) ? delta : {};
    const { stop_reason: stopReason, stop_details: details, stop_sequence: sequence } = fields;
    const refusal = refusalText(stopReason, details);
    if (refusal !== undefined) this.#events.push({ type: "refusal", choice, text: refusal });
    this.#takeUsage(usage);
    if (typeof stopReason !== "string") return;
    this.#events.push({
      type: "finish",
      choice,
      reason: finishReason(stopReason, this.#calls),
      ...(typeof sequence === "string" && { stopSequence: sequence }),
    });
  }

  /** Adopts reported usage. If it has no completion tokens, the tokens that the gateway counted stay. */
  #takeUsage(raw: unknown, part: "begin" | "take" = "take"): void {
    if (!this.#usage[part](raw)) return;
    const { usage } = this.#usage;
    if (usage !== undefined) this.#events.push({ type: "usage", usage });
  }
}

/** Returns the index of a block in the answer, or 0 if the provider sent no valid index. */
function validIndex(index: unknown): number {
  return Number.isSafeInteger(index) ? (index as number) : 0;
}
