import type { GatewayConfig } from "../config.ts";
import { StreamTicker } from "../endpoints/chat-completions/stream-ticker.ts";
import { type EndpointDependencies, modelEndpoints } from "../endpoints/table.ts";
import { errorEnvelope } from "../http/error-response.ts";
import { type Clock, steady } from "../lib/clock.ts";
import { DeadlineQueue } from "../lib/deadline-queue.ts";
import type { ActorWorld } from "./actor-world.ts";

interface EndpointParts
  extends Pick<
    EndpointDependencies,
    | "money"
    | "tunedModels"
    | "providers"
    | "admission"
    | "idempotency"
    | "events"
    | "isCutShort"
    | "whenCurrent"
    | "notes"
  > {
  readonly config: GatewayConfig;
  readonly clock: Clock;
  readonly world: ActorWorld;
  onStreamError(error: unknown, requestId: string): void;
}

/** The billed endpoints, and what ends the calls that run. */
export function composeEndpoints({ config, clock, world, onStreamError, ...parts }: EndpointParts) {
  const { upstreamTimeouts, keepaliveMs } = config;
  const steadyClock = steady(clock);
  const ticker = new StreamTicker(steadyClock);
  const deadlines = new DeadlineQueue(steadyClock, upstreamTimeouts.totalMs);
  const endpoints = modelEndpoints({
    ...parts,
    clock,
    calls: { endpoints: world.endpoints, clock, steadyClock, random: Math.random },
    ticker,
    steadyClock,
    keepaliveMs,
    openings: new DeadlineQueue(steadyClock, keepaliveMs),
    firstTokenTimeoutMs: upstreamTimeouts.firstTokenMs,
    idleTimeoutMs: upstreamTimeouts.idleMs,
    totalTimeoutMs: upstreamTimeouts.totalMs,
    deadlines,
    errorEnvelope,
    onError: onStreamError,
  });
  return { endpoints, ticker, deadlines };
}
