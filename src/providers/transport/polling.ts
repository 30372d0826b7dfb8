import type { Clock } from "../../lib/clock.ts";
import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "./call-abort.ts";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 3_000;
const GROWTH = 1.5;
/**
 * Number of consecutive failed polls after which a job is abandoned. A running job is paid for, so one failure does not
 * end it.
 */
const MAX_FAILED_POLLS = 4;
const RETRYABLE_KINDS: ReadonlySet<ProviderFailure["kind"]> = new Set([
  "unavailable",
  "rate_limited",
  "timeout",
]);

/**
 * Polls a job of a provider until it is done, with growing pauses. The signal limits the total time: if it aborts, this
 * rejects immediately with its reason.
 *
 * @param poll returns the result, the failure of the job, or undefined while it runs. If it throws a retryable error,
 *   it is called again.
 */
export async function untilDone<Result>(
  poll: () => Promise<Result | ProviderFailure | undefined>,
  signal: AbortNotice,
  clock: Clock,
): Promise<Result> {
  let failedPolls = 0;
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * GROWTH, LONGEST_WAIT_MS)) {
    await pause(waitMs, signal, clock);
    try {
      const outcome = await poll();
      failedPolls = 0;
      if (outcome instanceof ProviderFailure) throw new JobFailed(outcome);
      if (outcome !== undefined) return outcome;
    } catch (error) {
      if (error instanceof JobFailed) throw error.failure;
      if (signal.aborted || !isRetryable(error) || ++failedPolls >= MAX_FAILED_POLLS) throw error;
      await pause(Math.min(retryAfterOf(error) ?? 0, LONGEST_WAIT_MS), signal, clock);
    }
  }
}

class JobFailed {
  readonly failure: ProviderFailure;

  constructor(failure: ProviderFailure) {
    this.failure = failure;
  }
}

/** Returns true if the error is retryable. Connection errors, which are not yet a ProviderFailure, are retryable. */
function isRetryable(error: unknown): boolean {
  return !(error instanceof ProviderFailure) || RETRYABLE_KINDS.has(error.kind);
}

function retryAfterOf(error: unknown): number | undefined {
  return error instanceof ProviderFailure ? error.retryAfterMs : undefined;
}

function pause(ms: number, signal: AbortNotice, clock: Clock): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const listener: EventListenerObject = {
      handleEvent() {
        stop();
        reject(signal.reason);
      },
    };
    const stop = clock.after(ms, () => {
      signal.removeEventListener("abort", listener);
      resolve();
    });
    signal.addEventListener("abort", listener);
  });
}
