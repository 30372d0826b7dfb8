import type { Database } from "../../db/client.ts";
import { recentAdmissions } from "../../db/queries/recent-admissions.ts";
import { createCoordination } from "../cluster/create-coordination.ts";
import type { Coordination } from "../cluster/interface.ts";
import { BUCKET_MS, WINDOW_MS } from "../cluster/sliding-window.ts";
import type { GatewayConfig } from "../config.ts";
import type { Clock } from "../lib/clock.ts";
import type { Telemetry } from "../telemetry/interface.ts";

interface CoordinationOptions {
  readonly config: GatewayConfig;
  readonly telemetry: Telemetry;
  readonly clock: Clock;
}

/** How this instance speaks with the others. Losing and regaining Redis is logged, and shown in metrics. */
export async function openCoordination(
  { config, telemetry, clock }: CoordinationOptions,
  instanceId: string,
  liveInstances: () => readonly string[],
  onError: (error: unknown) => void,
): Promise<Coordination> {
  const coordination = await createCoordination({
    redisUrl: config.redisUrl,
    instanceId,
    clock,
    liveInstances,
    onRedisLost: (reason) =>
      telemetry.log.error(
        { err: reason },
        "Redis is lost: this instance admits its own share of each rate limit until it is back",
      ),
    onRedisBack: (lostForMs, admittedApart) =>
      telemetry.log.info(
        { lost_for_ms: Math.round(lostForMs), admitted_apart: admittedApart },
        "Redis is back: rate limits are counted there again",
      ),
    onError,
  });
  const { redis } = coordination;
  if (redis !== undefined) {
    telemetry.gauge("gateway_redis_up", "1 where rate limits are counted in Redis.", () =>
      redis.isUp ? 1 : 0,
    );
    telemetry.counter(
      "gateway_rate_admissions_apart_total",
      "Admissions of rate limits that were decided while Redis was lost.",
      () => redis.admittedApart,
    );
  }
  return coordination;
}

/**
 * The rate windows of a single-node gateway live in its memory. What the one before it has admitted within
 * the last minute is counted from the ledger, once its orphaned work is settled, so that restarts do not
 * widen a limit. A request that left no charge is not known: one that failed, and one whose whole answer was
 * under way when the process was killed.
 */
export async function restoreRateWindows(
  coordination: Coordination,
  sql: Database,
  clock: Clock,
): Promise<void> {
  if (coordination.restoreRates === undefined) return;
  const sinceMs = clock.nowMs() - WINDOW_MS - BUCKET_MS;
  coordination.restoreRates(await recentAdmissions(sql, sinceMs));
}
