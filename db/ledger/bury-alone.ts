import type { Database } from "../client.ts";

/**
 * Declares those dead that were alone on the database and have left attempts. For one that has entered it
 * as one of several, so that nobody is alone on it any more. What a lone gateway held was in its memory:
 * before anything is admitted its attempts are to be charged (settleDead), or the same money would be
 * given away a second time.
 */
export async function buryAlonePredecessors(sql: Database): Promise<void> {
  // Where several share the database, an attempt and its hold end in the same transaction.
  await sql`UPDATE instances SET alive = false WHERE id IN (
    SELECT i.id FROM instances i WHERE i.alive AND EXISTS (
      SELECT 1 FROM attempts a WHERE a.instance_id = i.id AND a.epoch = i.epoch AND a.hold_nano > 0
        AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.id = a.request_id))
    ORDER BY i.id FOR UPDATE)`;
}
