import type { Clock } from "../../lib/clock.ts";
import { doneInTime } from "../../lib/done-in-time.ts";
import type { ChatStreamCall } from "./chat-stream-call.ts";
import type { StreamCharge } from "./stream-charge.ts";
import type { StreamRelay } from "./stream-relay.ts";
import type { Transcript } from "./transcript.ts";

/** How long the end of a stream that failed waits for its charge, though its time is up. */
const MIN_CHARGE_WAIT_MS = 2_000;
/** How long the usage of a whole answer is waited for where its client has gone. */
const USAGE_WAIT_MS = 1_000;

/**
 * What a whole stream ends with: what is left of its answer, the usage where that was asked for, and [DONE].
 * Resolves when its charge is durable; rejects where that cannot be written.
 */
export async function chargedEnding(
  call: ChatStreamCall,
  relay: StreamRelay,
  charge: StreamCharge,
  transcript: Transcript | undefined,
): Promise<Uint8Array> {
  const usage = charge.usage();
  const figures = charge.figures(usage);
  const last = call.includeUsage
    ? call.usageChunk(usage, figures.chargeNano, relay.rewriter.created, relay.candidate)
    : "";
  const ending = relay.takeOutput(`${last}data: [DONE]\n\n`);
  await charge.settle(200, figures, call.store?.(transcript?.bytes(ending) ?? null));
  return ending;
}

/**
 * Charges what a stream that failed has delivered. True when that is durable; false after `leftMs`, though
 * not at once: then the charge follows, however long it takes.
 */
export function chargeInTime(charge: StreamCharge, clock: Clock, leftMs: number): Promise<boolean> {
  return doneInTime(charge.settleQuietly(200), clock, Math.max(leftMs, MIN_CHARGE_WAIT_MS));
}

/**
 * Charges an answer that was whole when its client went away. Nothing of it is left to stop, so its usage is
 * waited for: clients leave at the finish reason, and what a model thinks unseen is told by the usage alone.
 */
export async function chargeAsTold(
  relay: StreamRelay,
  charge: StreamCharge,
  clock: Clock,
  stopProvider: () => void,
): Promise<void> {
  await doneInTime(relay.readUsage(), clock, USAGE_WAIT_MS);
  stopProvider();
  await charge.settleQuietly(499);
}
