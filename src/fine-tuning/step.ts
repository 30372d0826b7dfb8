import type { Trigger } from "../../actors/fine-tuning-job/state.ts";
import type { JobError, JobRecord, NewJobEvent } from "../lib/fine-tuning-job.ts";
import type { FineTuningProvider } from "../providers/fine-tuning.ts";

/** What one step of a job has at hand. Whatever it writes stands under the lease of the job's owner. */
export interface StepContext {
  readonly job: JobRecord;
  readonly provider: FineTuningProvider;
  /** The bytes of a file of the job; undefined where there are none any more. */
  openFile(fileId: string): Promise<ReadableStream<Uint8Array> | undefined>;
  /** Writes what was measured; resolves with the file's id, or null where it was deleted. */
  writeResults(): Promise<string | null>;
  /** The job needs its files no longer. */
  releaseFiles(): Promise<void>;
  /** The context length of the base model. */
  readonly contextTokens: number;
  readonly nowMs: number;
  random(): number;
  /** False where the lease may have passed on: then nothing is asked of the provider any more. */
  isOwner(): boolean;
  /** Runs a call of the provider, which is aborted after `timeoutMs` and where the job is lost. */
  call<Result>(run: (signal: AbortSignal) => Promise<Result>, timeoutMs?: number): Promise<Result>;
  /** Moves the job on and resolves with the milliseconds until its next step. Throws JobMovedError. */
  move(
    trigger: Trigger,
    dueInMs: number | null,
    events?: readonly NewJobEvent[],
  ): Promise<number | null>;
  /** Ends the job, and its hold with it. */
  finish(ending: Ending, events: readonly NewJobEvent[]): Promise<number | null>;
  /** The provider's name of the job's model, where that was deleted here. */
  deletedModel(): Promise<string | undefined>;
  /** Something is given up that an operator may want to look at. */
  warn(message: string): void;
}

export type Ending =
  | {
      readonly kind: "trained";
      readonly providerModel: string;
      /** Undefined where the provider did not tell. */
      readonly trainedTokens: number | undefined;
    }
  | { readonly kind: "fail"; readonly error: JobError }
  | { readonly kind: "cancel" };

export function told(message: string, level: NewJobEvent["level"] = "info"): NewJobEvent {
  return { level, message, type: "message", data: {}, providerEvent: null };
}

/** Ends the job as failed. */
export function fail(
  context: StepContext,
  code: string,
  message: string,
  param: string | null = null,
  events: readonly NewJobEvent[] = [],
): Promise<number | null> {
  const error = {
    code: storable(code),
    message: storable(message),
    param: param && storable(param),
  };
  return context.finish({ kind: "fail", error }, [...events, told(error.message, "error")]);
}

/** Providers may say anything; no text of the database holds a NUL. */
function storable(text: string): string {
  return text.replaceAll("\0", "");
}
