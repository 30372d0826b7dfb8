import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/commit-batch.ts";
import { type DeadSettled, settleDead } from "../../../db/ledger/settle-dead.ts";
import {
  buryOthers,
  freeOrphanedIdempotencyKeys,
  insertInstance,
  takeAloneLock,
} from "../../../db/queries/instances.ts";

const LOCK_PATIENCE_MS = 3_000;
const LOCK_RETRY_MS = 50;

/** Another gateway holds the database, and without Redis the two could not act as one. */
export class NotAloneError extends Error {
  constructor() {
    super(
      "another gateway is running on this database; set REDIS_URL to run several instances, or stop the other one first",
    );
    this.name = "NotAloneError";
  }
}

/**
 * Takes the database over as its only gateway and finishes what a predecessor left: attempts are settled
 * at their last checkpoint, holds that stand in the database without one are given back, and holds in
 * memory are gone with it. Throws NotAloneError.
 */
export async function takeOver(
  lockConnection: Database,
  sql: Database,
  instance: InstanceIdentity,
): Promise<DeadSettled> {
  await becomeAlone(lockConnection);
  await insertInstance(sql, instance);
  await buryOthers(sql, instance.id);
  await freeOrphanedIdempotencyKeys(sql);
  return settleDead(sql, instance);
}

/** A predecessor that was killed a moment ago may still be losing its session. */
async function becomeAlone(lockConnection: Database): Promise<void> {
  const untilMs = performance.now() + LOCK_PATIENCE_MS;
  while (!(await takeAloneLock(lockConnection))) {
    if (performance.now() > untilMs) throw new NotAloneError();
    await Bun.sleep(LOCK_RETRY_MS);
  }
}
