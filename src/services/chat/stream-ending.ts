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
 * Charges what a stream that failed has delivered. True when that is durable; false when it is not by
 * `untilMs`, though not at once: then the charge follows, however long it takes.
 */
export function chargeUntil(charge: StreamCharge, clock: Clock, untilMs: number): Promise<boolean> {
  const leftMs = untilMs - clock.nowMs();
  return doneInTime(charge.settleQuietly(200), clock, Math.max(leftMs, MIN_CHARGE_WAIT_MS));
}

/**
 * Charges what had come when the client went away, and stops the provider: at once, but where the answer is
 * whole and only its usage is still to come. Clients leave at the finish reason, and what a model thinks
 * unseen is told by the usage alone.
 */
export async function chargeLeft(
  relay: StreamRelay,
  charge: StreamCharge,
  clock: Clock,
  stopProvider: () => void,
): Promise<void> {
  if (relay.lacksUsage) await doneInTime(relay.readUsage(), clock, USAGE_WAIT_MS);
  stopProvider();
  await charge.settleQuietly(499);
}
