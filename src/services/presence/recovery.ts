import type { Database } from "../../../db/client.ts";
import { commitLedgerBatch, type InstanceIdentity } from "../../../db/ledger/commit-batch.ts";
import {
  buryOthers,
  freeOrphanedIdempotencyKeys,
  insertInstance,
  orphanedAttempts,
  takeAloneLock,
} from "../../../db/queries/instances.ts";

const LOCK_PATIENCE_MS = 3_000;
const LOCK_RETRY_MS = 50;
const RECOVERY_BATCH = 500;

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
 * at their last checkpoint; holds without one lived in memory and are gone. Returns how many were settled.
 * Throws NotAloneError.
 */
export async function takeOver(
  lockConnection: Database,
  sql: Database,
  instance: InstanceIdentity,
): Promise<number> {
  await becomeAlone(lockConnection);
  await insertInstance(sql, instance);
  await buryOthers(sql, instance.id);
  await freeOrphanedIdempotencyKeys(sql);
  let settled = 0;
  for (;;) {
    const settlements = await orphanedAttempts(sql, RECOVERY_BATCH);
    if (settlements.length === 0) return settled;
    await commitLedgerBatch(sql, instance, {
      checkpoints: [],
      settlements,
      knownAccounts: new Set(),
      recheck: true,
    });
    settled += settlements.length;
  }
}

/** A predecessor that was killed a moment ago may still be losing its session. */
async function becomeAlone(lockConnection: Database): Promise<void> {
  const untilMs = performance.now() + LOCK_PATIENCE_MS;
  while (!(await takeAloneLock(lockConnection))) {
    if (performance.now() > untilMs) throw new NotAloneError();
    await Bun.sleep(LOCK_RETRY_MS);
  }
}
