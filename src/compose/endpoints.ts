import type { HealthChecks } from "../calls/routing/health-checks.ts";
import type { PaidCallDependencies } from "../calls/run-call.ts";
import { StreamTicker } from "../calls/stream/ticker.ts";
import type { GatewayConfig } from "../config.ts";
import { LongBodies } from "../endpoints/chat-completions/long-body.ts";
import { modelEndpoints } from "../endpoints/table.ts";
import { type Clock, steady } from "../lib/clock.ts";
import { DeadlineQueue } from "../lib/deadlines.ts";
import { FairWorkThread } from "../lib/work-thread.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import type { ActorWorld } from "./actor-world.ts";

interface EndpointParts
  extends Pick<
    PaidCallDependencies,
    | "money"
    | "tunedModels"
    | "ownKeys"
    | "providers"
    | "admission"
    | "idempotency"
    | "events"
    | "isCutShort"
    | "membership"
    | "notes"
  > {
  readonly config: GatewayConfig;
  readonly clock: Clock;
  readonly world: ActorWorld;
  readonly telemetry: Telemetry;
  readonly healthChecks: HealthChecks;
  /** For long bodies. */
  readonly workThread: FairWorkThread;
}

/** The largest body takes about a second; what takes longer hangs. */
const WORK_DEADLINE_MS = 15_000;
const MAX_WAIT_FOR_WORK_MS = 15_000;
const MAX_WAITING = 512;
const MAX_WAITING_OF_ONE = 128;

/** The thread for what would hold the event loop: see `long-work-thread.ts`. */
export function createWorkThread(onLost: (error: unknown) => void): FairWorkThread {
  return new FairWorkThread({
    script: new URL("./long-work-thread.ts", import.meta.url),
    deadlineMs: WORK_DEADLINE_MS,
    maxWaitMs: MAX_WAIT_FOR_WORK_MS,
    maxWaiting: MAX_WAITING,
    maxWaitingOfOne: MAX_WAITING_OF_ONE,
    onLost,
  });
}

/** The billed endpoints, and what ends the calls that run. */
export function composeEndpoints(options: EndpointParts) {
  const { config, clock, world, telemetry, workThread, healthChecks, ...parts } = options;
  const { upstreamTimeouts, keepaliveMs } = config;
  const steadyClock = steady(clock);
  const ticker = new StreamTicker(steadyClock);
  const deadlines = new DeadlineQueue(steadyClock, upstreamTimeouts.totalMs);
  const dependencies = {
    ...parts,
    calls: {
      ...{ endpoints: world.endpoints, clock, steadyClock, random: Math.random },
      onKeyRefused: (ownKeyId: string) => parts.ownKeys.refused(ownKeyId),
      isDown: (providerId: string) => healthChecks.isDown(providerId),
    },
    ticker,
    keepaliveMs,
    openings: new DeadlineQueue(steadyClock, keepaliveMs),
    firstTokenTimeoutMs: upstreamTimeouts.firstTokenMs,
    idleTimeoutMs: upstreamTimeouts.idleMs,
    totalTimeoutMs: upstreamTimeouts.totalMs,
    deadlines,
    onError: (error: unknown, requestId: string) =>
      telemetry.log.warn({ err: error, request_id: requestId }, "stream failed"),
  };
  const endpoints = modelEndpoints(dependencies, new LongBodies(workThread));
  return { endpoints, ticker, deadlines };
}
