import { PostgresOwnership, UnownedWork } from "../../../actors/runtime/ownership.ts";
import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import type { DeadSettled } from "../../../db/ledger/settle-dead.ts";
import { removeOldActs } from "../../../db/queries/audit-log.ts";
import { readDatabaseTime } from "../../../db/queries/database-server.ts";
import type { DeploymentMode } from "../../../db/queries/instances.ts";
import { recentAdmissions } from "../../../db/queries/recent-admissions.ts";
import type { BudgetSubjects } from "../../billing/ledger/budget-subjects.ts";
import type { CreditOrders } from "../../billing/ledger/credit-orders.ts";
import type { Suspensions } from "../../http/authentication.ts";
import type { ByokKeys } from "../../inference/call/routing/own-keys.ts";
import type { DefinitionCache } from "../../inference/definitions/known-definitions.ts";
import type { ResponseServices } from "../../inference/responses/background-routes.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import { Cleaning, join, Reaper, takeOver } from "../../platform/cluster/clean-up.ts";
import { ClockWatch } from "../../platform/cluster/clock-watch.ts";
import { createCoordination } from "../../platform/cluster/create-coordination.ts";
import { HeartbeatThread } from "../../platform/cluster/heartbeat-thread.ts";
import type { Coordination } from "../../platform/cluster/interface.ts";
import { ClusterMembership, OwnLease } from "../../platform/cluster/membership.ts";
import { BUCKET_MS, WINDOW_MS } from "../../platform/cluster/sliding-window.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { tellKeys } from "../../platform/master-key/master-key.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { cleanWebhooks } from "../../webhooks/outbox.ts";
import type { ActorWorld } from "./actor-world.ts";
import type { Base, Connections } from "./base.ts";
import type { BatchParts } from "./batches.ts";
import type { FineTuningParts } from "./fine-tuning.ts";
import type { PaymentParts } from "./payments.ts";
import type { VectorStoreParts } from "./vector-stores.ts";
import type { WebhookParts } from "./webhooks.ts";

interface ClusterNodeOptions {
  readonly connections: Connections;
  readonly instance: InstanceIdentity;
  readonly deploymentMode: DeploymentMode;
  /** Heartbeats that do not wait for the event loop, where others judge this instance by them. */
  readonly heartbeats?: HeartbeatThread | undefined;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  onChange(kind: string, objectId: string): void;
  onGap(): void;
  onFenced(): void;
  onError(error: unknown): void;
  /** What else is to be cleaned up, on one instance at a time. */
  readonly cleaningTasks: readonly (() => Promise<void>)[];
}

/** This process among those that share its database. */
export interface ClusterNode {
  readonly membership: ClusterMembership;
  readonly ownership: PostgresOwnership;
  /** Kinds of owned actors are registered here before `start`. */
  readonly unowned: UnownedWork;
  /** As the only gateway of the database, or as one of several. Throws GatewayLockHeldError. */
  enter(): Promise<void>;
  start(): Promise<void>;
  /** Hands everything back and leaves. Rejects where the database could not be told. */
  leave(): Promise<void>;
}

const VERIFY_MS = 10_000;

export function createClusterNode(options: ClusterNodeOptions): ClusterNode {
  const { connections, instance, deploymentMode, clock, telemetry, onError } = options;
  const { background: sql, lock } = connections;
  const lease = new OwnLease(undefined, options.heartbeats?.ageMs);
  const ownership = new PostgresOwnership({ sql, instance, ownLease: lease });
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
    onSettled: (estate) => noteSettled(telemetry, estate, onError),
    onError,
  });
  const membership: ClusterMembership = new ClusterMembership({
    sql: lock,
    instance,
    deploymentMode,
    reconnect: (minAgeMs) => connections.renewLock(minAgeMs),
    changeFeed: new ChangeFeed({ sql: lock, onChange: options.onChange, onGap: options.onGap }),
    lease,
    onGap: options.onGap,
    onLateHeartbeat: () => ownership.verify(),
    onOrphanedWork: () => reaper.reap(),
    onFenced: options.onFenced,
    onError,
  });
  telemetry.gauge(
    "gateway_instances",
    "Instances that were alive at the last heartbeat, this one among them.",
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
    },
    async start() {
      await membership.start();
      options.heartbeats?.start();
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

/** The node of this process, with its heartbeats and what else it cleans. */
export function composeNode(
  base: Base,
  listeners: Pick<ClusterNodeOptions, "onChange" | "onGap" | "onFenced">,
): ClusterNode {
  const { connections, instance, isClustered, telemetry, onError } = base;
  return createClusterNode({
    ...base,
    ...listeners,
    deploymentMode: isClustered ? "clustered" : "single-node",
    // No other instance judges a single node by its heartbeats: its lock says that it is the only one.
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
    "How far this machine's clock is ahead of the database's at least; negative where it is behind.",
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
    telemetry.log.warn({ charged: settled, released }, "settled what others left running");
  }
  for (const error of failures) onError(error);
}

/** How this instance speaks with the others. Losing and regaining Redis is logged, and shown in metrics. */
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
async function restoreRateWindows(
  coordination: Coordination,
  sql: Database,
  clock: Clock,
): Promise<void> {
  if (coordination.restoreRates === undefined) return;
  const sinceMs = clock.nowMs() - WINDOW_MS - BUCKET_MS;
  coordination.restoreRates(await recentAdmissions(sql, sinceMs));
}

/** Whether the configuration says anywhere how many calls may run at once. */
function limitsCalls({ providers, models }: GatewayConfig): boolean {
  const endpoints = models.flatMap((model) => model.endpoints ?? []);
  return (
    providers.some(({ maxParallelRequests }) => maxParallelRequests !== undefined) ||
    endpoints.some(({ max_parallel_requests: max }) => max !== undefined)
  );
}

/** Lets the other instances know of this one, in an order that their shares and their keys depend on. */
export async function enterCluster(
  { background, clock, instance, keyring, config }: Base,
  node: ClusterNode,
  coordination: Coordination,
): Promise<void> {
  // Before the others know of this instance: they leave a share of each limit to one that has not joined.
  await coordination.start();
  if (limitsCalls(config)) await coordination.slots.begin();
  await node.enter();
  await restoreRateWindows(coordination, background, clock);
  await tellKeys(background, instance, keyring);
}

/** What holds state that another instance, or an operator's command, can change in the database. */
export interface ChangeListeners {
  readonly world: ActorWorld;
  readonly suspensions: Suspensions;
  readonly budgetSubjects: BudgetSubjects;
  readonly orders: CreditOrders;
  readonly webhooks: WebhookParts;
  readonly tuning: FineTuningParts;
  readonly vectorStores: VectorStoreParts;
  readonly batches: BatchParts;
  readonly byokKeys: ByokKeys;
  readonly definitions: DefinitionCache;
  readonly keyring: Keyring;
  readonly responses: ResponseServices;
  readonly billing: Pick<PaymentParts, "replenish">;
}

/** Applies a change that the change feed reports. */
export function applyChange(listeners: ChangeListeners, kind: string, objectId: string): void {
  const { world, suspensions, orders, webhooks, tuning, byokKeys, keyring, vectorStores } =
    listeners;
  const { definitions, budgetSubjects } = listeners;
  if (kind === "api-key") world.keys.forget(objectId);
  else if (kind === "organization") world.organizations.forget(objectId);
  else if (kind === "subject-budget") world.subjectBudgets.forget(objectId);
  else if (kind === "budget-subjects") budgetSubjects.forget(objectId);
  else if (kind === "suspension") suspensions.forget();
  else if (kind === "credit-command") void orders.carryOut();
  else if (kind === "webhook") webhooks.deliveries.changed(objectId);
  else if (kind === "outbox") webhooks.numbering.nudge();
  else if (kind === "subscriptions") webhooks.subscriptions.forget(objectId);
  else if (kind === "provider-keys") byokKeys.forget(objectId);
  else if (kind === "definitions") definitions.forget(objectId);
  else if (kind === "vector-store-work") vectorStores.onWork();
  else if (kind === "batch-work") listeners.batches.onWork(objectId);
  else if (kind === "replenish") listeners.billing.replenish.nudge();
  else if (kind === "response-cancel") listeners.responses.runs.cancel(objectId);
  else if (kind === "master-key") keyring.noteSealing(objectId);
  else tuning.onChange(kind, objectId);
}

/** Drops all that may be stale after a gap in the change feed. */
export function forgetAll(listeners: ChangeListeners): void {
  const { world, suspensions, orders, webhooks, tuning, byokKeys, definitions } = listeners;
  suspensions.forget();
  definitions.forgetAll();
  byokKeys.forgetAll();
  world.keys.forgetAll();
  world.organizations.forgetAll();
  world.subjectBudgets.forgetAll();
  listeners.budgetSubjects.forgetAll();
  tuning.onGap();
  void orders.carryOut();
  webhooks.subscriptions.forgetAll();
  webhooks.deliveries.changedAll();
  webhooks.numbering.nudge();
  listeners.billing.replenish.nudge();
  listeners.responses.runs.recheck();
}
