import type { GatewayConfig } from "../config.ts";
import {
  ChatCompletions,
  type ChatCompletionsDependencies,
} from "../endpoints/chat-completions/chat-completions.ts";
import { StreamTicker } from "../endpoints/chat-completions/stream-ticker.ts";
import { errorEnvelope } from "../http/error-response.ts";
import { type Clock, steady } from "../lib/clock.ts";
import { DeadlineQueue } from "../lib/deadline-queue.ts";
import type { ActorWorld } from "./actor-world.ts";

interface ChatParts
  extends Pick<
    ChatCompletionsDependencies,
    | "money"
    | "tunedModels"
    | "providers"
    | "rates"
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

/** Chat completions, and what ends those that run. */
export function composeChat({ config, clock, world, onStreamError, ...parts }: ChatParts) {
  const { upstreamTimeouts, keepaliveMs } = config;
  const steadyClock = steady(clock);
  const ticker = new StreamTicker(steadyClock);
  const deadlines = new DeadlineQueue(steadyClock, upstreamTimeouts.totalMs);
  const chat = new ChatCompletions({
    ...parts,
    organizations: world.organizations,
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
  return { chat, ticker, deadlines };
}
