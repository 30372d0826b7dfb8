import type { Clock } from "../../lib/clock.ts";
import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "./call-abort.ts";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 3_000;
const GROWTH = 1.5;
/** A job that runs is paid for: this many looks in succession may fail before it is given up. */
const MAX_FAILED_LOOKS = 4;
const PASSING: ReadonlySet<ProviderFailure["kind"]> = new Set([
  "unavailable",
  "rate_limited",
  "timeout",
]);

/**
 * Looks at a job of a provider until it is done, with growing waits between. How long that may take in all is
 * the signal's matter: where it aborts, this rejects at once with its reason.
 *
 * @param look the result, the failure that the job has ended with, or undefined while it runs. What it throws
 *   is a failure of the look, which is repeated where it may pass.
 */
export async function untilDone<Result>(
  look: () => Promise<Result | ProviderFailure | undefined>,
  signal: AbortNotice,
  clock: Clock,
): Promise<Result> {
  let failedLooks = 0;
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * GROWTH, LONGEST_WAIT_MS)) {
    await pause(waitMs, signal, clock);
    try {
      const seen = await look();
      failedLooks = 0;
      if (seen instanceof ProviderFailure) throw new JobFailed(seen);
      if (seen !== undefined) return seen;
    } catch (error) {
      if (error instanceof JobFailed) throw error.failure;
      if (signal.aborted || !mayPass(error) || ++failedLooks >= MAX_FAILED_LOOKS) throw error;
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

/** Faults of the connection are no ProviderFailure yet. */
function mayPass(error: unknown): boolean {
  return !(error instanceof ProviderFailure) || PASSING.has(error.kind);
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
