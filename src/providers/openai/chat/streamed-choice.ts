import type { FinishReason } from "../../interface.ts";
import { finishReason } from "./finish-reason.ts";
import { normaliseContent } from "./provider-content.ts";
import { isText } from "./stream-chunk.ts";
import { StreamedToolCalls } from "./streamed-tool-calls.ts";
import { callIdStem, dropNothingCalled } from "./tool-calls.ts";

type Fields = Record<string, unknown>;

/** One choice of a stream, as far as it has come. */
export class StreamedChoice {
  readonly #completionId: string;
  readonly #index: number;
  #toolCalls: StreamedToolCalls | undefined;
  #isRefused = false;
  #isFinished = false;

  constructor(completionId: string, index: number) {
    this.#completionId = completionId;
    this.#index = index;
  }

  /** True once it has ended with a reason. */
  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Brings a piece into the gateway's form, in place. */
  take(delta: Fields): void {
    normaliseContent(delta);
    dropNothingCalled(delta);
    if (isText(delta.refusal)) this.#isRefused = true;
    if (!Array.isArray(delta.tool_calls)) return;
    this.#toolCalls ??= new StreamedToolCalls(callIdStem(this.#completionId, this.#index));
    this.#toolCalls.take(delta.tool_calls);
  }

  /** Why it ends, where the provider says that it does. */
  reason(raw: unknown): FinishReason | null {
    const reason = finishReason(raw, this.#toolCalls !== undefined);
    return reason !== null && this.#isRefused ? "content_filter" : reason;
  }

  /** Ends it: with its last piece comes what its calls still lack. */
  finish(reason: FinishReason, delta: Fields): void {
    this.#isFinished = true;
    if (reason !== "tool_calls" || this.#toolCalls === undefined) return;
    const lacking = this.#toolCalls.emptyArguments();
    if (lacking.length === 0) return;
    const told = Array.isArray(delta.tool_calls) ? delta.tool_calls : [];
    delta.tool_calls = [...told, ...lacking];
  }
}
