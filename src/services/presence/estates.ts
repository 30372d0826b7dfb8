import type { Database } from "../../../db/client.ts";
import { commitLedgerBatch, type InstanceIdentity } from "../../../db/ledger/commit-batch.ts";
import {
  freeOrphanedIdempotencyKeys,
  noteSettled,
  orphanedAttempts,
} from "../../../db/queries/instances.ts";

const ESTATE_BATCH = 500;

/**
 * Finishes what dead instances left: attempts are settled at their last checkpoint, and the idempotency
 * keys of calls without a result are free again. What they owned is free by their death. Returns how many
 * attempts there were.
 */
export async function settleEstates(sql: Database, instance: InstanceIdentity): Promise<number> {
  await freeOrphanedIdempotencyKeys(sql);
  const settled = await settleDead(sql, instance);
  await noteSettled(sql);
  return settled;
}

async function settleDead(sql: Database, instance: InstanceIdentity): Promise<number> {
  let settled = 0;
  for (;;) {
    const settlements = await orphanedAttempts(sql, ESTATE_BATCH);
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
