import { EventSplitter } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import type { ChatEvent, FinishReason, ReasoningDetail } from "../../interface.ts";
import type { StreamDecoder } from "../../typed-stream-reader.ts";
import { ChunkReader, type FailureReader, MAX_EVENT_BYTES } from "./chunk-reader.ts";
import { stopSequenceOf, textIn } from "./whole-answer.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Reads the chunks of a stream as typed events: text, reasoning, refusals and tool calls. */
export class ChunkDecoder implements StreamDecoder {
  readonly #chunks: ChunkReader;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);

  /** @param id of the request, for calls without an id */
  constructor(id: string, failureReader: FailureReader | undefined) {
    this.#chunks = new ChunkReader(id, failureReader);
  }

  get isOver(): boolean {
    return this.#chunks.isOver;
  }

  push(bytes: Uint8Array, events: ChatEvent[]): void {
    this.#splitter.push(bytes, (data) => this.#take(data, events));
  }

  end(events: ChatEvent[]): void {
    this.#splitter.end((data) => this.#take(data, events));
  }

  #take(data: string, events: ChatEvent[]): void {
    const read = this.#chunks.read(data);
    if (read === undefined) return;
    const { choices, usage, failure } = read;
    for (const choice of choices) this.#readChoice(choice, events);
    if (usage !== undefined) events.push({ type: "usage", usage });
    if (failure !== undefined) events.push({ type: "error", failure });
  }

  #readChoice(fields: Fields, events: ChatEvent[]): void {
    const choice = fields.index as number;
    const delta = fields.delta as Fields;
    readReasoning(choice, delta, events);
    readText(choice, delta, fields.logprobs, events);
    const refusal = textIn(delta.refusal);
    if (refusal !== undefined) events.push({ type: "refusal", choice, text: refusal });
    const { tool_calls: calls } = delta;
    if (Array.isArray(calls)) for (const call of calls) readCall(choice, call, events);
    const { finish_reason: reason } = fields;
    if (typeof reason !== "string") return;
    const stopSequence = stopSequenceOf(fields);
    events.push({
      type: "finish",
      choice,
      reason: reason as FinishReason,
      ...(stopSequence !== undefined && { stopSequence }),
    });
  }
}

function readText(
  choice: number,
  { content, annotations }: Fields,
  logprobs: unknown,
  events: ChatEvent[],
): void {
  const text = textIn(content) ?? "";
  const isCited = Array.isArray(annotations) && annotations.length > 0;
  if (text === "" && !isCited) return;
  events.push({
    type: "text",
    choice,
    text,
    ...(isCited && { annotations }),
    ...(isFields(logprobs) && { logprobs }),
  });
}

function readReasoning(
  choice: number,
  { reasoning, reasoning_details: details }: Fields,
  events: ChatEvent[],
): void {
  const text = textIn(reasoning) ?? "";
  const hasDetails = Array.isArray(details) && details.length > 0;
  if (text === "" && !hasDetails) return;
  events.push({
    type: "reasoning",
    choice,
    text,
    ...(hasDetails && { details: details as ReasoningDetail[] }),
  });
}

function readCall(choice: number, call: unknown, events: ChatEvent[]): void {
  if (!isFields(call)) return;
  const { index, id, function: called } = call;
  const { name, arguments: json } = isFields(called) ? called : {};
  events.push({
    type: "tool_call",
    choice,
    index: index as number,
    ...(typeof id === "string" && { id }),
    ...(typeof name === "string" && { name }),
    ...(typeof json === "string" && { arguments: json }),
  });
}
