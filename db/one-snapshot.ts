import type { Database, DatabaseTransaction } from "./client.ts";

/** Runs reads that have to agree with one another, such as a page of a list and how long the list is. */
export function inOneSnapshot<Result>(
  sql: Database,
  read: (snapshot: DatabaseTransaction) => Promise<Result>,
): Promise<Result> {
  return sql.begin("isolation level repeatable read, read only", read) as Promise<Result>;
}
