import { PostgresOwnership, UnownedWork } from "../../../actors/runtime/ownership.ts";
import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import type { DeadSettled } from "../../../db/ledger/settle-dead.ts";
import { removeOldActs } from "../../../db/queries/audit-log.ts";
import { readDatabaseTime } from "../../../db/queries/database-server.ts";
import type { DeploymentMode } from "../../../db/queries/instances.ts";
import { recentAdmissions } from "../../../db/queries/recent-admissions.ts";
import type { Clock } from "../../lib/clock.ts";
import type { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import { Cleaning, join, Reaper, takeOver } from "../../platform/cluster/clean-up.ts";
import { ClockWatch } from "../../platform/cluster/clock-watch.ts";
import { createCoordination } from "../../platform/cluster/create-coordination.ts";
import { HeartbeatThread } from "../../platform/cluster/heartbeat-thread.ts";
import type { Coordination } from "../../platform/cluster/interface.ts";
import { ClusterMembership, InstanceLease } from "../../platform/cluster/membership.ts";
import { BUCKET_MS, WINDOW_MS } from "../../platform/cluster/sliding-window.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { recordKnownKeys } from "../../platform/master-key/master-key.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { cleanWebhooks } from "../../webhooks/outbox.ts";
import type { Base, Connections } from "./base.ts";

interface ClusterNodeOptions {
  readonly connections: Connections;
  readonly instance: InstanceIdentity;
  readonly deploymentMode: DeploymentMode;
  /** The heartbeat thread, which does not wait for the event loop. Absent if no other instance judges this one. */
  readonly heartbeats?: HeartbeatThread | undefined;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly changes: ChangeFeed;
  onFenced(): void;
  onError(error: unknown): void;
  /** Further clean-up tasks, which run on one instance at a time. */
  readonly cleaningTasks: readonly (() => Promise<void>)[];
}

/** This process as a member of the gateways that share its database. */
export interface ClusterNode {
  readonly membership: ClusterMembership;
  readonly ownership: PostgresOwnership;
  /** Register kinds of owned actors here before `start`. */
  readonly unowned: UnownedWork;
  /** Joins as the only gateway of the database, or as one of several. Throws GatewayLockHeldError. */
  enter(): Promise<void>;
  start(): Promise<void>;
  /** Releases all leases and leaves. Rejects if the database cannot be reached. */
  leave(): Promise<void>;
}

const VERIFY_MS = 10_000;

export function createClusterNode(options: ClusterNodeOptions): ClusterNode {
  const { connections, instance, deploymentMode, clock, telemetry, onError } = options;
  const { background: sql, lock } = connections;
  const lease = new InstanceLease(undefined, options.heartbeats?.ageMs);
  const ownership = new PostgresOwnership({ sql, instance, instanceLease: lease });
  let declaredDead = 0;
  telemetry.counter(
    "gateway_instances_declared_dead_total",
    "Silent instances that this one declared dead.",
    () => declaredDead,
  );
  const reaper = new Reaper({
    sql,
    instance,
    onDeclaredDead(ids) {
      declaredDead += ids.length;
      telemetry.log.warn({ instances: ids }, "declared silent instances dead");
      void unowned.sweep();
    },
    onSettled: (settled) => noteSettled(telemetry, settled, onError),
    onError,
  });
  const membership: ClusterMembership = new ClusterMembership({
    sql: lock,
    instance,
    deploymentMode,
    reconnect: (minAgeMs) => connections.renewLock(minAgeMs),
    changeFeed: options.changes,
    lease,
    onLateHeartbeat: () => ownership.verify(),
    onOrphanedWork: () => reaper.reap(),
    onFenced: options.onFenced,
    onError,
  });
  telemetry.gauge(
    "gateway_instances",
    "Instances that were alive at the last heartbeat, including this one.",
    () => membership.peers().count,
  );
  const unowned = new UnownedWork({ ownership, membership, clock, onError });
  const cleaning = new Cleaning({
    sql,
    clock,
    tasks: options.cleaningTasks,
    isOurTurn: () => membership.peers().rank === 0,
    onError,
  });
  const clockWatch = watchClock(options);
  let verifying: ReturnType<typeof setInterval> | undefined;
  return {
    membership,
    ownership,
    unowned,
    async enter() {
      const become = deploymentMode === "clustered" ? join : takeOver;
      noteSettled(telemetry, await become(lock, sql, instance), onError);
      // The lease of the row has begun: peers would declare an instance dead that takes longer to construct the rest.
      options.heartbeats?.start();
    },
    async start() {
      await membership.start();
      cleaning.start();
      clockWatch.start();
      unowned.start();
      verifying = setInterval(() => void ownership.verify().catch(onError), VERIFY_MS);
    },
    async leave() {
      clearInterval(verifying);
      options.heartbeats?.stop();
      cleaning.stop();
      clockWatch.stop();
      await unowned.stop();
      await reaper.close();
      try {
        await ownership.releaseAll();
      } finally {
        await membership.stop();
      }
    },
  };
}

/** Composes the node of this process, with its heartbeats and clean-up tasks. */
export function composeNode(base: Base): ClusterNode {
  const { connections, instance, isClustered, telemetry, onError } = base;
  return createClusterNode({
    ...base,
    deploymentMode: isClustered ? "clustered" : "single-node",
    // No other instance judges a single node by its heartbeats: its lock proves that it is the only one.
    heartbeats: isClustered
      ? new HeartbeatThread({ target: base.database, instance, onError })
      : undefined,
    cleaningTasks: [
      async () => {
        while (await removeOldActs(connections.background, base.config.auditLogDays));
      },
      () =>
        cleanWebhooks(connections.webhooks, (webhookId, events) =>
          telemetry.log.warn(
            { webhook_id: webhookId, events },
            "dropped events of a webhook that was disabled for three days",
          ),
        ),
    ],
  });
}

function watchClock({ connections, clock, telemetry }: ClusterNodeOptions): ClockWatch {
  const watch = new ClockWatch({
    clock,
    readDatabaseTime: () => readDatabaseTime(connections.background),
    onApart: (aheadMs) =>
      telemetry.log.warn(
        { ahead_ms: Math.round(aheadMs) },
        "this machine's clock differs from the database's: keys expire, budgets renew and webhooks are signed at the wrong time",
      ),
    onAgreed: () => telemetry.log.info({}, "this machine's clock agrees with the database's again"),
  });
  telemetry.gauge(
    "gateway_clock_ahead_seconds",
    "Least time by which this machine's clock is ahead of the database's; negative if it is late.",
    () => watch.aheadMs / 1_000,
  );
  return watch;
}

function noteSettled(
  telemetry: Telemetry,
  { settled, released, failures }: DeadSettled,
  onError: (error: unknown) => void,
): void {
  if (settled + released > 0) {
    telemetry.log.warn({ charged: settled, released }, "settled requests of dead instances");
  }
  for (const error of failures) onError(error);
}

/** Opens the coordination with other instances. Logs when Redis is lost and found again, and shows it in metrics. */
export async function openCoordination(
  { config, telemetry, clock, instance, onError }: Base,
  membership: ClusterMembership,
): Promise<Coordination> {
  const coordination = await createCoordination({
    redisUrl: config.redisUrl,
    instanceId: instance.id,
    clock,
    liveInstances: () => membership.liveInstances(),
    onRedisLost: (reason) =>
      telemetry.log.error(
        { err: reason },
        "Redis is lost: this instance admits its share of each rate limit until Redis answers again",
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
    telemetry.gauge("gateway_redis_up", "1 if Redis counts the rate limits.", () =>
      redis.isUp ? 1 : 0,
    );
    telemetry.counter(
      "gateway_rate_admissions_apart_total",
      "Decisions on rate limits that were made without Redis.",
      () => redis.admittedWithoutRedis,
    );
  }
  return coordination;
}

/**
 * Fills the rate windows of a single-node gateway, which are in its memory. After the orphaned work of the previous
 * process is settled, it counts that process's charges of the last minute, so that a restart does not widen a limit.
 * Requests without a charge are not counted: those that failed, and whole answers that the kill interrupted.
 */
async function restoreRateWindows(
  coordination: Coordination,
  sql: Database,
  clock: Clock,
): Promise<void> {
  if (coordination.restoreRates === undefined) return;
  const sinceMs = clock.nowMs() - WINDOW_MS - BUCKET_MS;
  coordination.restoreRates(await recentAdmissions(sql, sinceMs));
}

/** Returns true if the configuration limits the parallel calls of any provider or endpoint. */
function limitsCalls({ providers, models }: GatewayConfig): boolean {
  const endpoints = models.flatMap((model) => model.endpoints ?? []);
  return (
    providers.some(({ maxParallelRequests }) => maxParallelRequests !== undefined) ||
    endpoints.some(({ max_parallel_requests: max }) => max !== undefined)
  );
}

/** Joins the cluster, in an order that the shares and the keys of other instances depend on. */
export async function enterCluster(
  { background, clock, instance, keyring, config }: Base,
  node: ClusterNode,
  coordination: Coordination,
): Promise<void> {
  // Before the others know of this instance, because they leave a share of each limit to one that has not joined.
  await coordination.start();
  if (limitsCalls(config)) await coordination.slots.begin();
  await node.enter();
  await restoreRateWindows(coordination, background, clock);
  await recordKnownKeys(background, instance, keyring);
}
