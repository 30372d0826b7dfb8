import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import { type DeadSettled, settleDead } from "../../db/ledger/settle-dead.ts";
import { freeOrphanedIdempotencyKeys, noteSettled } from "../../db/queries/instances.ts";

/**
 * Finishes what dead instances left: attempts are settled at their last checkpoint, holds without one
 * are given back, and the idempotency keys of calls without a result are free again. What they owned is
 * free by their death.
 */
export async function settleOrphanedWork(
  sql: Database,
  instance: InstanceIdentity,
): Promise<DeadSettled> {
  await freeOrphanedIdempotencyKeys(sql);
  const settled = await settleDead(sql, instance);
  await noteSettled(sql);
  return settled;
}
