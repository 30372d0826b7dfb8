import type { Database, DatabaseTransaction } from "./client.ts";

/** A read, with the tables it reads, so that an actor's permissions can be checked against it. */
export interface Query<Result> {
  readonly name: string;
  readonly tables: readonly string[];
  run(sql: Database): Promise<Result>;
}

/** Runs reads that have to agree with one another, such as a page of a list and how long the list is. */
export function inOneSnapshot<Result>(
  sql: Database,
  read: (snapshot: DatabaseTransaction) => Promise<Result>,
): Promise<Result> {
  return sql.begin("isolation level repeatable read, read only", read) as Promise<Result>;
}
