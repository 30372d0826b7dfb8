import { isFields } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import { type FinishReason, ProviderFailure } from "../../interface.ts";
import {
  failedChoice,
  finishReason,
  isEmptyDelta,
  isText,
  normaliseContent,
  parseChunk,
  reportsError,
} from "./provider-content.ts";
import { mergeUsage, reportedUsage } from "./reported-usage.ts";
import { callIdStem, dropEmptyCalls, StreamedToolCalls } from "./tool-calls.ts";

type Fields = Record<string, unknown>;

/** Largest single event. A provider that sends more is broken. */
export const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** Returns the failure for an event that reports an error. */
export type FailureReader = (event: Readonly<Fields>) => ProviderFailure;

interface ReadChunk {
  /** The provider's chunk. Its choices are rewritten. */
  readonly chunk: Fields;
  /** The choices that are not empty, in the gateway's form. */
  readonly choices: readonly Fields[];
  /** True if a choice has more than its role, or ends. */
  readonly hasContent: boolean;
  /** Usage of everything so far. Undefined if the chunk reports none. */
  readonly usage: Usage | undefined;
  readonly failure: ProviderFailure | undefined;
}

const NO_CHOICES: readonly Fields[] = Object.freeze([]);

/**
 * Reads the chunks of a stream in OpenAI's format, and converts their choices to one form whatever the provider (spec
 * 6.2): the role appears once, a choice ends once, and calls have ids, indexes and arguments. After an error only usage
 * is read. Throws ProviderFailure for data that is not a chunk.
 */
export class ChunkReader {
  finishedChoices = 0;
  readonly #id: string;
  readonly #failureReader: FailureReader | undefined;
  readonly #onDelta: ((delta: Readonly<Fields>) => void) | undefined;
  /** The choices that have begun, by index. */
  readonly #begun = new Map<number, StreamedChoice>();
  #usage: Usage | undefined;
  #isUsageCurrent = false;
  #hasFailed = false;
  #isDone = false;

  /**
   * @param id of the request or its answer, for calls without an id
   * @param onDelta receives the delta of each choice before the gateway adds anything to it
   */
  constructor(
    id: string,
    failureReader: FailureReader | undefined,
    onDelta?: (delta: Readonly<Fields>) => void,
  ) {
    this.#id = id;
    this.#failureReader = failureReader;
    this.#onDelta = onDelta;
  }

  get startedChoices(): number {
    return this.#begun.size;
  }

  /** True after the end marker. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** True after the end marker, or after an error if the reported usage includes all of the answer. */
  get isOver(): boolean {
    return this.#isDone || (this.#hasFailed && this.#isUsageCurrent);
  }

  /** Reads the data of an event. Returns undefined if it is not a chunk. */
  read(data: string): ReadChunk | undefined {
    // Some servers send empty events to keep connections alive.
    if (this.#isDone || data === "") return undefined;
    if (data.startsWith("[DONE]")) {
      this.#isDone = true;
      return undefined;
    }
    const chunk = parseChunk(data);
    const reported = reportedUsage(chunk, this.#begun.size <= 1);
    if (reported !== undefined) this.#usage = mergeUsage(this.#usage, reported);
    const usage = reported && this.#usage;
    if (this.#hasFailed) {
      this.#isUsageCurrent ||= usage !== undefined;
      return { chunk, choices: NO_CHOICES, hasContent: false, usage, failure: undefined };
    }
    const error = reportsError(chunk) ? chunk : failedChoice(chunk.choices);
    // Read the failure before the chunk is rewritten in place.
    const failure = error && this.#failureOf(error);
    this.#hasFailed = failure !== undefined;
    const choices: Fields[] = [];
    let hasContent = false;
    for (const choice of Array.isArray(chunk.choices) ? chunk.choices : NO_CHOICES) {
      if (!isFields(choice)) continue;
      const step = this.#rewriteChoice(choice);
      if (step !== "skipped") choices.push(choice);
      hasContent ||= step === "content";
    }
    this.#isUsageCurrent = usage !== undefined || (this.#isUsageCurrent && !hasContent);
    return { chunk, choices, hasContent, usage, failure };
  }

  #failureOf(chunk: Fields): ProviderFailure {
    return (
      this.#failureReader?.(chunk) ??
      new ProviderFailure("unavailable", "the provider sent an error in its stream")
    );
  }

  /**
   * Rewrites a choice in place, because it was parsed for this call only. Skips it if it is empty. A choice in a chunk
   * with an error does not end.
   */
  #rewriteChoice(choice: Fields): "skipped" | "empty" | "content" {
    const index = Number.isSafeInteger(choice.index) ? (choice.index as number) : 0;
    const delta: Fields = isFields(choice.delta) ? choice.delta : {};
    const existing = this.#begun.get(index);
    const state = existing ?? this.#begin(index);
    state.take(delta);
    this.#onDelta?.(delta);
    delete delta.role;
    const isEmpty = isEmptyDelta(delta);
    const reason = this.#hasFailed ? null : state.reason(choice.finish_reason);
    // A choice ends only once. Some providers end it twice, send usage in an empty delta, or repeat the reason in each
    // chunk.
    const wasFinished = state.isFinished;
    if ((wasFinished || this.#hasFailed) && isEmpty) return "skipped";
    const ends = reason !== null && !wasFinished;
    if (ends) {
      state.finish(reason, delta);
      this.finishedChoices++;
    }
    delete choice.usage;
    choice.index = index;
    choice.delta = existing === undefined ? { role: "assistant", ...delta } : delta;
    choice.finish_reason = ends ? reason : null;
    return ends || !isEmpty ? "content" : "empty";
  }

  #begin(index: number): StreamedChoice {
    const state = new StreamedChoice(this.#id, index);
    this.#begun.set(index, state);
    return state;
  }
}

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
