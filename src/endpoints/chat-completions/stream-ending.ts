import type { ChatStreamCall } from "./chat-stream-call.ts";
import type { StreamCharge } from "./stream-charge.ts";
import type { StreamRelay } from "./stream-relay.ts";
import type { Transcript } from "./transcript.ts";

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
