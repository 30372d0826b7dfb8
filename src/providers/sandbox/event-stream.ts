import type { Clock } from "../../lib/clock.ts";
import { ProviderFailure } from "../interface.ts";
import type { PlannedEvent } from "./answer-shape.ts";
import { aborted, waitOn } from "./wait.ts";

export interface Pacing {
  /** Waited before each token. */
  readonly tokenDelayMs: number;
  readonly breaksAfterTokens: number;
}

/**
 * Events as server-sent events, one for each pull, so that a reader who stops stops the stream. Ends
 * with `[DONE]`; errors with ProviderFailure when it is aborted or meant to break.
 */
export function asEventStream(
  events: Iterator<PlannedEvent>,
  pacing: Pacing,
  clock: Clock,
  signal: AbortSignal,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const cancelled = new AbortController();
  const stop = AbortSignal.any([signal, cancelled.signal]);
  let tokens = 0;

  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      if (signal.aborted) return controller.error(aborted(signal));
      const next = events.next();
      if (next.done === true) {
        controller.enqueue(encoder.encode("data: [DONE]\n\n"));
        return controller.close();
      }
      if (next.value.isToken && tokens++ >= pacing.breaksAfterTokens) {
        return controller.error(new ProviderFailure("unavailable", "the stream broke off"));
      }
      if (next.value.isToken && pacing.tokenDelayMs > 0) {
        try {
          await waitOn(clock, pacing.tokenDelayMs, stop);
        } catch (failure) {
          return controller.error(failure);
        }
      }
      controller.enqueue(encoder.encode(`data: ${JSON.stringify(next.value.chunk)}\n\n`));
    },
    cancel() {
      cancelled.abort();
    },
  });
}
