import type { Database } from "../../../db/client.ts";
import { cleanDeliveries } from "../../../db/queries/delivery-clean.ts";
import { EVENT_TYPES } from "../../lib/event-types.ts";

/** Rounds of one clean-up; what is left is for the next one. */
const MAX_ROUNDS = 20;

/** Removes what is kept no longer. `onDropped` is told of events that nobody got. */
export async function cleanWebhooks(
  sql: Database,
  onDropped: (webhookId: string, count: number) => void,
): Promise<void> {
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const { dropped, isMore } = await cleanDeliveries(sql, EVENT_TYPES);
    for (const [webhookId, count] of dropped) onDropped(webhookId, count);
    if (!isMore) return;
  }
}
