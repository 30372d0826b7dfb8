import { type Clock, sleep, steady } from "../src/lib/clock.ts";
import { GatewayError } from "../src/lib/errors.ts";
import { isOutcomeUnknown, isServerUnable, RESPONSE_LOST, sqlState } from "./client.ts";

/**
 * Returns the public error for a failure of the database. Returns undefined for any other failure.
 */
export function asUnavailable(error: unknown): GatewayError | undefined {
  const message = messageOf(error);
  if (message === undefined) return undefined;
  return new GatewayError("database_unavailable", message, { cause: error, retryAfterSeconds: 1 });
}

function messageOf(error: unknown): string | undefined {
  if (isOutcomeUnknown(error)) return "The gateway's database cannot be reached at the moment.";
  if (isServerUnable(error)) return "The gateway's database cannot do this at the moment.";
  if (sqlState(error) === RESPONSE_LOST) return "The gateway's database lost the last write.";
  return undefined;
}

/**
 * Returns an error that may be shown to the caller. An error that is not meant for the caller becomes a 500.
 */
export function asGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const unavailable = asUnavailable(error);
  if (unavailable !== undefined) return unavailable;
  return new GatewayError("internal", "Something went wrong inside the gateway.", { cause: error });
}

/** A shorter outage costs callers only the wait. */
const MAX_UNREACHABLE_MS = 1_000;
/** How often the driver tries to connect. */
const RETRY_MS = 100;

/**
 * Repeats the work for a second while the connection to the database breaks or cannot be opened. Use it only for work
 * that may run twice, such as a read. Rejects with the error of the last try. If the client leaves, the running try is
 * the last one.
 */
export async function untilReachable<Result>(
  clock: Clock,
  run: () => Promise<Result>,
  signal?: AbortSignal,
): Promise<Result> {
  const { nowMs } = steady(clock);
  const untilMs = nowMs() + MAX_UNREACHABLE_MS;
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!isOutcomeUnknown(error) || nowMs() >= untilMs || signal?.aborted) throw error;
      await sleep(clock, RETRY_MS);
    }
  }
}
