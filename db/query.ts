import type { Database } from "./client.ts";

/** A read, with the tables it reads, so that an actor's permissions can be checked against it. */
export interface Query<Result> {
  readonly name: string;
  readonly tables: readonly string[];
  run(sql: Database): Promise<Result>;
}
