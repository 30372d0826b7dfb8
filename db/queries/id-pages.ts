import type { Listed, ListPage } from "../../src/lib/vector-store.ts";
import type { Database, SqlFragment } from "../client.ts";

/**
 * Returns the start of a page in a list that is ordered by ids, and the direction in which it is read.
 */
export function pageStart(
  sql: Database,
  id: SqlFragment,
  { order, after, before }: ListPage,
): { condition: SqlFragment; order: SqlFragment } {
  const isBackwards = after === undefined && before !== undefined;
  const cursor = after ?? before;
  const isAscending = (order === "asc") !== isBackwards;
  const direction = isAscending ? sql`ASC` : sql`DESC`;
  if (cursor === undefined) return { condition: sql``, order: direction };
  const condition = isAscending
    ? sql`AND ${id} COLLATE "C" > ${cursor}`
    : sql`AND ${id} COLLATE "C" < ${cursor}`;
  return { condition, order: direction };
}

/** Returns the items of a page. `read` has one more than the limit if there are more. */
export function listedOf<Item>(read: Item[], { limit, after, before }: ListPage): Listed<Item> {
  const items = read.slice(0, limit);
  if (after === undefined && before !== undefined) items.reverse();
  return { items, hasMore: read.length > limit };
}
