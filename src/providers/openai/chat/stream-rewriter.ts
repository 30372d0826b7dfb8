import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { EventSplitter, latin1OfText } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import { type AnswerOptions, type FinishReason, ProviderFailure } from "../../interface.ts";
import { StreamedAnswer } from "../../streamed-answer.ts";
import { PRIVATE_MEMBERS } from "../openai-variants.ts";
import { type DeltaTemplate, learnTemplate } from "./delta-template.ts";
import {
  createdTime,
  failedChoice,
  finishReason,
  hideReasoning,
  isEmptyDelta,
  isText,
  normaliseContent,
  normaliseHead,
  parseChunk,
  reportsError,
} from "./provider-content.ts";
import { mergeUsage, reportedUsage } from "./reported-usage.ts";
import { calledBytes, callIdStem, dropEmptyCalls, StreamedToolCalls } from "./tool-calls.ts";

/** Returns the failure for an event that reports an error. */
export type FailureReader = (event: Readonly<Record<string, unknown>>) => ProviderFailure;

/**
 * Members of a chunk that are removed: the client gets them elsewhere, or they are empty or specific to the provider.
 */
const REMOVED_FIELDS = ["usage", "error", ...PRIVATE_MEMBERS] as const;
/** Largest single event. A provider that sends more is broken. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/**
 * Converts the stream of a provider with OpenAI's API to the gateway's stream (spec 6.2) and meters it. Chunks get one
 * id and model, the role appears once, usage is kept for the end, and members that break OpenAI's clients are removed.
 * Chunks that look like the previous one are rewritten without being parsed. In texts, each character is one byte.
 *
 * Throws ProviderFailure for an error object, invalid JSON, or an event that is too large.
 */
export class StreamRewriter extends StreamedAnswer<Uint8Array> {
  readonly #options: AnswerOptions;
  readonly #failureReader: FailureReader | undefined;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  /** The choices that have begun, by index. */
  readonly #begun = new Map<number, StreamedChoice>();
  #template: DeltaTemplate | undefined;

  /** Appends whole events for the client to `output`. */
  constructor(options: AnswerOptions, output: ByteBuffer, failureReader?: FailureReader) {
    super(output, options.nowSeconds);
    this.#options = options;
    this.#failureReader = failureReader;
  }

  protected override take(bytes: Uint8Array): void {
    this.#splitter.push(bytes, this.#takeEvent, this.#takeRun);
  }

  protected override takeEnd(): void {
    this.#splitter.end(this.#takeEvent);
  }

  /** Rewrites consecutive events that match the template. Returns the position after them. */
  readonly #takeRun = (text: string, start: number): number => {
    const template = this.#template;
    if (template === undefined || this.isDone || this.failure !== undefined) return start;
    let end = start;
    let events = 0;
    for (;;) {
      const next = template.endOfEvent(text, end);
      if (next < 0) break;
      const textBytes = next - end - template.framingLength;
      if (textBytes > 0) this.noteBegun();
      this.meter(textBytes);
      end = next;
      events++;
    }
    this.noteEvents(events);
    if (events === 1) this.output.add(template.rewrite(text, start, end));
    else if (events > 1) template.rewriteRun(text, start, end, events, this.output);
    return end;
  };

  readonly #takeEvent = (data: string): void => {
    if (this.isDone) return;
    this.noteEvents(1);
    // Some servers send empty events to keep connections alive.
    if (data === "") return;
    if (data.startsWith("[DONE]")) {
      this.noteDone();
      return;
    }
    const chunk = parseChunk(data);
    if (this.failure !== undefined) {
      this.#noteUsage(reportedUsage(chunk, this.#begun.size <= 1));
      return;
    }
    const error = reportsError(chunk) ? chunk : failedChoice(chunk.choices);
    // Read the failure before the chunk is rewritten in place.
    const failure = error && this.#failureOf(error);
    this.#takeChunk(chunk, data, failure !== undefined);
    if (failure !== undefined) this.noteReportedError(failure);
  };

  #takeChunk(chunk: Record<string, unknown>, data: string, isFailing: boolean): void {
    // All chunks of a completion have the same time (OpenAI, "The chat completion chunk object").
    if (this.#begun.size === 0) {
      this.createdSeconds = createdTime(chunk.created) ?? this.createdSeconds;
    }
    const usage = reportedUsage(chunk, this.#begun.size <= 1);
    const choices = Array.isArray(chunk.choices) ? this.#choices(chunk.choices, isFailing) : [];
    this.#noteUsage(usage);
    if (choices.length === 0) return;
    for (const name of REMOVED_FIELDS) if (chunk[name] !== undefined) chunk[name] = undefined;
    normaliseHead(chunk);
    chunk.id = this.#options.id;
    chunk.object = "chat.completion.chunk";
    chunk.created = this.createdSeconds;
    chunk.model = this.#options.model;
    chunk.choices = choices;
    const text = latin1OfText(JSON.stringify(chunk));
    this.#template = learnTemplate(data, text, choices);
    this.output.add(`data: ${text}\n\n`);
  }

  #noteUsage(usage: Usage | undefined): void {
    if (usage !== undefined) this.noteUsage(mergeUsage(this.reportedUsage, usage));
  }

  #failureOf(chunk: Record<string, unknown>): ProviderFailure {
    return (
      this.#failureReader?.(chunk) ??
      new ProviderFailure("unavailable", "the provider sent an error in its stream")
    );
  }

  /** Returns the choices that are not empty, rewritten in place, because they were parsed for this call only. */
  #choices(raw: readonly unknown[], isFailing: boolean): Record<string, unknown>[] {
    const choices: Record<string, unknown>[] = [];
    for (const choice of raw) {
      if (!isFields(choice) || !this.#rewriteChoice(choice, isFailing)) continue;
      choices.push(choice);
    }
    return choices;
  }

  /** Rewrites a choice. Returns false if it is empty. A choice in a chunk with an error does not end. */
  #rewriteChoice(choice: Record<string, unknown>, isFailing: boolean): boolean {
    const index = Number.isSafeInteger(choice.index) ? (choice.index as number) : 0;
    const delta: Record<string, unknown> = isFields(choice.delta) ? choice.delta : {};
    const existing = this.#begun.get(index);
    const state = existing ?? this.#begin(index);
    state.take(delta);
    this.#meterDelta(delta);
    delete delta.role;
    const isEmpty = isEmptyDelta(delta);
    if (this.#options.hidesReasoning) hideReasoning(delta);
    const reason = isFailing ? null : state.reason(choice.finish_reason);
    // A choice ends only once. Some providers end it twice, send usage in an empty delta, or repeat the reason in each
    // chunk.
    const wasFinished = state.isFinished;
    if ((wasFinished || isFailing) && isEmpty) return false;
    const ends = reason !== null && !wasFinished;
    if (ends) {
      state.finish(reason, delta);
      this.finishedChoices++;
    }
    if (ends || !isEmpty) this.noteBegun();
    delete choice.usage;
    choice.index = index;
    choice.delta = existing === undefined ? { role: "assistant", ...delta } : delta;
    choice.finish_reason = ends ? reason : null;
    return true;
  }

  #begin(index: number): StreamedChoice {
    const state = new StreamedChoice(this.#options.id, index);
    this.#begun.set(index, state);
    this.startedChoices++;
    return state;
  }

  #meterDelta(delta: Record<string, unknown>): void {
    this.#meterText(delta.content);
    this.#meterText(delta.reasoning);
    this.#meterText(delta.refusal);
    this.meter(calledBytes(delta));
    if (Array.isArray(delta.images)) for (const _ of delta.images) this.meterImage();
    if (isFields(delta.audio)) this.#meterSpoken(delta.audio);
  }

  /** Meters audio `{id, data, transcript, expires_at}`. `data` is base64, four characters for three bytes. */
  #meterSpoken({ data, transcript }: Record<string, unknown>): void {
    this.#meterText(transcript);
    if (typeof data === "string") this.meterSound(Math.floor((data.length * 3) / 4));
  }

  #meterText(text: unknown): void {
    if (typeof text === "string") this.meter(Buffer.byteLength(text));
  }
}

type Fields = Record<string, unknown>;

/** The state of one choice of a stream. */
class StreamedChoice {
  readonly #completionId: string;
  readonly #index: number;
  #toolCalls: StreamedToolCalls | undefined;
  #isRefused = false;
  #isFinished = false;

  constructor(completionId: string, index: number) {
    this.#completionId = completionId;
    this.#index = index;
  }

  /** True after the choice has ended with a reason. */
  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Converts a piece to the gateway's form, in place. */
  take(delta: Fields): void {
    normaliseContent(delta);
    dropEmptyCalls(delta);
    if (isText(delta.refusal)) this.#isRefused = true;
    if (!Array.isArray(delta.tool_calls)) return;
    this.#toolCalls ??= new StreamedToolCalls(callIdStem(this.#completionId, this.#index));
    this.#toolCalls.take(delta.tool_calls);
  }

  /** Returns the finish reason. Null if the provider has not reported one. */
  reason(raw: unknown): FinishReason | null {
    const reason = finishReason(raw, this.#toolCalls !== undefined);
    return reason !== null && this.#isRefused ? "content_filter" : reason;
  }

  /** Ends the choice. Adds empty arguments to its last piece for tool calls without arguments. */
  finish(reason: FinishReason, delta: Fields): void {
    this.#isFinished = true;
    if (reason !== "tool_calls" || this.#toolCalls === undefined) return;
    const missing = this.#toolCalls.emptyArguments();
    if (missing.length === 0) return;
    const calls = Array.isArray(delta.tool_calls) ? delta.tool_calls : [];
    delta.tool_calls = [...calls, ...missing];
  }
}
