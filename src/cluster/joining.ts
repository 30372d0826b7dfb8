import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import type { DeadSettled } from "../../db/ledger/settle-dead.ts";
import { type DeploymentMode, takeGatewayLock } from "../../db/queries/instance-lock.ts";
import { buryOthers, insertInstance, markSingleNodesDead } from "../../db/queries/instances.ts";
import { settleOrphanedWork } from "./orphaned-work.ts";

const LOCK_PATIENCE_MS = 3_000;
const LOCK_RETRY_MS = 50;

/** Another gateway holds the database, and the two could not act as one. */
export class GatewayLockHeldError extends Error {
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
