import type { Database } from "../../db/client.ts";
import {
  type CleaningCursor,
  dropExpiredDeliveries,
  removeOldDeliveries,
  removeOldEvents,
  removeOrphanedDeliveries,
  repairDueTimes,
} from "../../db/queries/deliveries.ts";

/** Rows that one statement looks at or removes, as far as they can be counted beforehand. */
const MAX_ROWS = 500;
/** Statements of one kind in one clean-up; what is left is for the next one. */
const MAX_ROUNDS = 200;

/**
 * Removes what is kept no longer, by many small statements: other work on webhooks comes between them.
 * `onDropped` is called with events that were dropped behind a disabled webhook.
 */
export async function cleanWebhooks(
  sql: Database,
  onDropped: (webhookId: string, count: number) => void,
  maxRows = MAX_ROWS,
): Promise<void> {
  await untilLess(maxRows, async () => {
    const dropped = await dropExpiredDeliveries(sql, maxRows);
    for (const [webhookId, count] of dropped) onDropped(webhookId, count);
    return [...dropped.values()].reduce((sum, count) => sum + count, 0);
  });
  await untilLess(maxRows, () => removeOldDeliveries(sql, maxRows));
  await goThrough("", (after) => removeOrphanedDeliveries(sql, after, maxRows));
  await goThrough(0n, (after) => removeOldEvents(sql, after, maxRows));
  await goThrough("", (after) => repairDueTimes(sql, after, maxRows));
}

async function untilLess(most: number, remove: () => Promise<number>): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    if ((await remove()) < most) return;
  }
}

async function goThrough<Id>(
  first: Id,
  part: (after: Id) => Promise<CleaningCursor<Id>>,
): Promise<void> {
  let after: CleaningCursor<Id> = first;
  for (let round = 0; round < MAX_ROUNDS && after !== undefined; round++) {
    after = await part(after);
  }
}
