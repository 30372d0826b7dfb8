import type { Clock } from "../lib/clock.ts";
import { ProviderFailure } from "../providers/interface.ts";

/** Waits on a clock. Rejects with ProviderFailure "aborted" as soon as the signal is aborted. */
export function waitOn(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(aborted(signal));
    const onAbort = () => {
      stopTimer();
      reject(aborted(signal));
    };
    const stopTimer = clock.after(delayMs, () => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    });
    signal.addEventListener("abort", onAbort, { once: true });
  });
}

export function aborted(signal: { readonly reason: unknown }): ProviderFailure {
  return new ProviderFailure("aborted", "the call was aborted", { cause: signal.reason });
}
