import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { type DeadSettled, settleDead } from "../../../db/ledger/settle-dead.ts";
import { removeSpentLeases } from "../../../db/queries/actor-leases.ts";
import { removeOldAnswerSteps } from "../../../db/queries/answer-steps.ts";
import { failOrphanedResponses } from "../../../db/queries/background-responses.ts";
import { removeOldChanges } from "../../../db/queries/changes.ts";
import { removeOldCommitMarks } from "../../../db/queries/commit-marks.ts";
import { removeOldFailedRequests } from "../../../db/queries/failed-requests.ts";
import { removeOldIdempotencyRecords } from "../../../db/queries/idempotency.ts";
import {
  buryOthers,
  buryPastLease,
  type DeploymentMode,
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
  /** Instances were declared dead: what they owned is free. */
  onDeclaredDead(ids: readonly string[]): void;
  /** Attempts and holds of dead instances were settled or released. */
  onSettled(estate: DeadSettled): void;
  onError(error: unknown): void;
}

/**
 * Declares silent instances dead and finishes what they left. Any number of instances may do so at once,
 * and any of them may die of it: burials pass over what another has locked, settling counts each request
 * once, and orphaned work is recorded as settled only when nothing is left of it.
 */
export class Reaper {
  readonly #dependencies: ReaperDependencies;
  #running: Promise<void> | undefined;

  constructor(dependencies: ReaperDependencies) {
    this.#dependencies = dependencies;
  }

  /** Begins unless it is at work. Never throws. */
  reap(): void {
    this.#running ??= this.#reap()
      .catch(this.#dependencies.onError)
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** Resolves when nothing is under way. */
  async close(): Promise<void> {
    await this.#running;
  }

  async #reap(): Promise<void> {
    const { sql, instance, onDeclaredDead, onSettled } = this.#dependencies;
    const buried = await buryPastLease(sql, instance);
    if (buried.length > 0) onDeclaredDead(buried);
    onSettled(await settleOrphanedWork(sql, instance));
  }
}

const LOCK_PATIENCE_MS = 3_000;
const LOCK_RETRY_MS = 50;

/** Another gateway holds the database, and the two could not act as one. */
class GatewayLockHeldError extends Error {
  constructor(deploymentMode: DeploymentMode) {
    super(
      deploymentMode === "single-node"
        ? "another gateway is running on this database; set REDIS_URL to run several instances, or stop the other one first"
        : "a gateway that is to be the only one is running on this database; set REDIS_URL there too, or stop it first",
    );
    this.name = "GatewayLockHeldError";
  }
}

/**
 * Takes the database over as its only gateway and finishes what a predecessor left: attempts are settled
 * at their last checkpoint; holds without one are given back, or lived in memory and are gone. Throws GatewayLockHeldError.
 */
export async function takeOver(
  lockConnection: Database,
  sql: Database,
  instance: InstanceIdentity,
): Promise<DeadSettled> {
  await enter(lockConnection, "single-node");
  await insertInstance(sql, instance, true);
  await buryOthers(sql, instance.id);
  return settleOrphanedWork(sql, instance);
}

/**
 * Becomes one of several instances. What the others leave is settled once they are past their leases: it
 * is held in the database. What a lone predecessor held was in its memory, so it is declared dead, and
 * what it left is charged, before anything is admitted: else the same money were given away twice.
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

/** A predecessor that was killed a moment ago may still be losing its session. */
async function enter(lockConnection: Database, deploymentMode: DeploymentMode): Promise<void> {
  const untilMs = performance.now() + LOCK_PATIENCE_MS;
  while (!(await takeGatewayLock(lockConnection, deploymentMode))) {
    if (performance.now() > untilMs) throw new GatewayLockHeldError(deploymentMode);
    await Bun.sleep(LOCK_RETRY_MS);
  }
}

/**
 * Finishes what dead instances left: attempts are settled at their last checkpoint, holds without one
 * are given back, the idempotency keys of calls without a result are free again, and background responses
 * have failed. What they owned is free by their death.
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
  /** Further tasks, each bounded by itself. */
  readonly tasks: readonly (() => Promise<void>)[];
  /** True on one instance of several. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

const CLEANING_MS = 60_000;
/** Batches of one kind in one clean-up; what is left is for the next one. */
const MAX_ROUNDS = 1_000;

const REMOVALS = [
  removeOldChanges,
  removeOldCommitMarks,
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
