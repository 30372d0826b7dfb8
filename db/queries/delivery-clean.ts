import type { Database } from "../client.ts";

const MAX_REMOVED = 5_000;

export interface CleanedDeliveries {
  /** How many events of which disabled webhook were given up after three days. */
  readonly dropped: ReadonlyMap<string, number>;
  /** True where there may be more to remove. */
  readonly isMore: boolean;
}

/** Removes a bounded number of deliveries and events that are not kept any more. */
export async function cleanDeliveries(
  sql: Database,
  eventTypes: readonly string[],
  limit = MAX_REMOVED,
): Promise<CleanedDeliveries> {
  const [row] = await sql<{ done: { dropped: Record<string, number>; removed: number } }[]>`
    SELECT clean_deliveries(${sql.array([...eventTypes])}::text[], ${limit}) AS done`;
  const { dropped, removed } = row!.done;
  const counts = Object.values(dropped);
  const droppedCount = counts.reduce((sum, count) => sum + count, 0);
  return {
    dropped: new Map(Object.entries(dropped)),
    isMore: removed >= limit || droppedCount >= limit,
  };
}
