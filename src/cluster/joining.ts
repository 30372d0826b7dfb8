import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import type { DeadSettled } from "../../db/ledger/settle-dead.ts";
import { type Company, takeGatewayLock } from "../../db/queries/instance-lock.ts";
import { buryAlone, buryOthers, insertInstance } from "../../db/queries/instances.ts";
import { settleEstates } from "./orphaned-work.ts";

const LOCK_PATIENCE_MS = 3_000;
const LOCK_RETRY_MS = 50;

/** Another gateway holds the database, and the two could not act as one. */
export class NotAloneError extends Error {
  constructor(company: Company) {
    super(
      company === "alone"
        ? "another gateway is running on this database; set REDIS_URL to run several instances, or stop the other one first"
        : "a gateway that is to be the only one is running on this database; set REDIS_URL there too, or stop it first",
    );
    this.name = "NotAloneError";
  }
}

/**
 * Takes the database over as its only gateway and finishes what a predecessor left: attempts are settled
 * at their last checkpoint; holds without one are given back, or lived in memory and are gone. Throws NotAloneError.
 */
export async function takeOver(
  lockConnection: Database,
  sql: Database,
  instance: InstanceIdentity,
): Promise<DeadSettled> {
  await enter(lockConnection, "alone");
  await insertInstance(sql, instance, true);
  await buryOthers(sql, instance.id);
  return settleEstates(sql, instance);
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
  await enter(lockConnection, "several");
  await insertInstance(sql, instance);
  await buryAlone(sql);
  return settleEstates(sql, instance);
}

/** A predecessor that was killed a moment ago may still be losing its session. */
async function enter(lockConnection: Database, company: Company): Promise<void> {
  const untilMs = performance.now() + LOCK_PATIENCE_MS;
  while (!(await takeGatewayLock(lockConnection, company))) {
    if (performance.now() > untilMs) throw new NotAloneError(company);
    await Bun.sleep(LOCK_RETRY_MS);
  }
}
