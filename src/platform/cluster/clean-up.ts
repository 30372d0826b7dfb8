import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { type DeadSettled, settleDead } from "../../../db/ledger/settle-dead.ts";
import { removeSpentLeases } from "../../../db/queries/actor-leases.ts";
import { removeOldAlerts } from "../../../db/queries/alert-delivery.ts";
import { removeOldAnswerSteps } from "../../../db/queries/answer-steps.ts";
import { failOrphanedResponses } from "../../../db/queries/background-responses.ts";
import { removeOldChanges } from "../../../db/queries/changes.ts";
import { removeOldCommitMarks } from "../../../db/queries/commit-marks.ts";
import { removeOldFailedRequests } from "../../../db/queries/failed-requests.ts";
import { removeOldIdempotencyRecords } from "../../../db/queries/idempotency.ts";
import {
  type DeploymentMode,
  declareOthersDead,
  declareSilentDead,
  freeOrphanedIdempotencyKeys,
  insertInstance,
  markSingleNodesDead,
  noteSettled,
  removeDeadInstances,
  takeGatewayLock,
} from "../../../db/queries/instances.ts";
import { removeExpiredAnswers, removeOldFlights } from "../../../db/queries/response-cache.ts";
import { removeOldResponses } from "../../../db/queries/responses.ts";
import type { Clock } from "../../lib/clock.ts";

interface ReaperDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Called after instances were declared dead. Everything that they owned is free. */
  onDeclaredDead(ids: readonly string[]): void;
  /** Called after attempts of dead instances were settled and their holds released. */
  onSettled(settled: DeadSettled): void;
  onError(error: unknown): void;
}

/**
 * Declares silent instances dead and completes their work. Several instances can do so at the same
 * time, and each can crash during it. Declarations skip instances that another reaper has locked,
 * settling counts each request once, and orphaned work is recorded as settled only after all of it
 * is settled.
 */
export class Reaper {
  readonly #dependencies: ReaperDependencies;
  #running: Promise<void> | undefined;

  constructor(dependencies: ReaperDependencies) {
    this.#dependencies = dependencies;
  }

  /** Starts a run unless one is in progress. Never throws. */
  reap(): void {
    this.#running ??= this.#reap()
      .catch(this.#dependencies.onError)
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** Resolves when no run is in progress. */
  async close(): Promise<void> {
    await this.#running;
  }

  async #reap(): Promise<void> {
    const { sql, instance, onDeclaredDead, onSettled } = this.#dependencies;
    const deadIds = await declareSilentDead(sql, instance);
    if (deadIds.length > 0) onDeclaredDead(deadIds);
    onSettled(await settleOrphanedWork(sql, instance));
  }
}

const MAX_LOCK_WAIT_MS = 3_000;
const LOCK_RETRY_MS = 50;

/** Thrown if another gateway uses the database and the two cannot run together. */
class GatewayLockHeldError extends Error {
  constructor(deploymentMode: DeploymentMode) {
    super(
      deploymentMode === "single-node"
        ? "another gateway is running on this database; set REDIS_URL to run several instances, or stop the other one first"
        : "a single-node gateway is running on this database; set REDIS_URL for it too, or stop it first",
    );
    this.name = "GatewayLockHeldError";
  }
}

/**
 * Takes over the database as its only gateway and completes the work of a predecessor. Settles
 * attempts at their last checkpoint and releases holds without one; holds that were only in the
 * predecessor's memory no longer exist. Throws GatewayLockHeldError.
 */
export async function takeOver(
  lockConnection: Database,
  sql: Database,
  instance: InstanceIdentity,
): Promise<DeadSettled> {
  await enter(lockConnection, "single-node");
  await insertInstance(sql, instance, true);
  await declareOthersDead(sql, instance.id);
  return settleOrphanedWork(sql, instance);
}

/**
 * Joins as one of several instances. The work of the others is settled after their leases have
 * expired, because their holds are in the database. The holds of a single-node predecessor were in
 * its memory. It is therefore declared dead, and its work is charged, before this instance admits a
 * request. Otherwise the same money would be given out twice.
 */
export async function join(
  lockConnection: Database,
  sql: Database,
  instance: InstanceIdentity,
): Promise<DeadSettled> {
  await enter(lockConnection, "clustered");
  await insertInstance(sql, instance);
  await markSingleNodesDead(sql);
  return settleOrphanedWork(sql, instance);
}

/**
 * Takes the gateway lock. Retries for a while, because the session of a predecessor that was just
 * killed can still hold it.
 */
async function enter(lockConnection: Database, deploymentMode: DeploymentMode): Promise<void> {
  const untilMs = performance.now() + MAX_LOCK_WAIT_MS;
  while (!(await takeGatewayLock(lockConnection, deploymentMode))) {
    if (performance.now() > untilMs) throw new GatewayLockHeldError(deploymentMode);
    await Bun.sleep(LOCK_RETRY_MS);
  }
}

/**
 * Completes the work of dead instances. Settles attempts at their last checkpoint, releases holds
 * without one, frees the idempotency keys of calls without a result, and fails background
 * responses. Everything else that they owned is free because they are dead.
 */
async function settleOrphanedWork(sql: Database, instance: InstanceIdentity): Promise<DeadSettled> {
  await freeOrphanedIdempotencyKeys(sql);
  await failOrphanedResponses(sql);
  const settled = await settleDead(sql, instance);
  await noteSettled(sql);
  return settled;
}

interface CleaningDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** Further tasks. Each bounds its own work. */
  readonly tasks: readonly (() => Promise<void>)[];
  /** Returns true on one of several instances. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

const CLEANING_MS = 60_000;
/** Batches of one kind in one clean-up. The next clean-up continues. */
const MAX_ROUNDS = 1_000;

const REMOVALS = [
  removeOldChanges,
  removeOldCommitMarks,
  removeOldAlerts,
  removeOldIdempotencyRecords,
  removeOldAnswerSteps,
  removeOldResponses,
  removeExpiredAnswers,
  removeOldFlights,
  removeOldFailedRequests,
  removeSpentLeases,
];

/** Removes expired rows in bounded batches, on one instance at a time. */
export class Cleaning {
  readonly #dependencies: CleaningDependencies;
  #cancel: (() => void) | undefined;

  constructor(dependencies: CleaningDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    this.#cancel = this.#dependencies.clock.after(CLEANING_MS, async () => {
      if (this.#dependencies.isOurTurn()) await this.#clean().catch(this.#dependencies.onError);
      if (this.#cancel !== undefined) this.start();
    });
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  async #clean(): Promise<void> {
    const { sql } = this.#dependencies;
    for (const remove of REMOVALS) {
      for (let round = 0; round < MAX_ROUNDS && this.#cancel !== undefined; round++) {
        if (!(await remove(sql))) break;
      }
    }
    await removeDeadInstances(sql);
    for (const task of this.#dependencies.tasks) await task();
  }
}
