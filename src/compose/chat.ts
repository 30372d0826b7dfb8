import type { GatewayConfig } from "../config.ts";
import {
  ChatCompletions,
  type ChatCompletionsDependencies,
} from "../endpoints/chat-completions/chat-completions.ts";
import { LongBodies } from "../endpoints/chat-completions/long-body.ts";
import { StreamTicker } from "../endpoints/chat-completions/stream-ticker.ts";
import { errorEnvelope } from "../http/error-response.ts";
import { type Clock, steady } from "../lib/clock.ts";
import { DeadlineQueue } from "../lib/deadline-queue.ts";
import { FairWorkThread } from "../lib/fair-work-thread.ts";
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
  onError(error: unknown): void;
}

/** The largest body takes about a second; what takes longer hangs. */
const WORK_DEADLINE_MS = 15_000;
const MAX_WAIT_FOR_WORK_MS = 15_000;
const MAX_WAITING = 512;
const MAX_WAITING_OF_ONE = 128;

/** Chat completions, and what ends those that run. */
export function composeChat({ config, clock, world, onStreamError, onError, ...parts }: ChatParts) {
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
  const workThread = new FairWorkThread({
    script: new URL("./long-work-thread.ts", import.meta.url),
    deadlineMs: WORK_DEADLINE_MS,
    maxWaitMs: MAX_WAIT_FOR_WORK_MS,
    maxWaiting: MAX_WAITING,
    maxWaitingOfOne: MAX_WAITING_OF_ONE,
    onLost: onError,
  });
  return { chat, longBodies: new LongBodies(workThread), workThread, ticker, deadlines };
}
