import type { Database } from "../../db/client.ts";
import { median } from "./compare.ts";

const SAMPLES = 300;

/** Median of durable one-row inserts, one after the other, in milliseconds. */
export async function commitLatencyMs(sql: Database): Promise<number> {
  await sql`CREATE TABLE IF NOT EXISTS bench_commits (id bigserial PRIMARY KEY, at timestamptz NOT NULL)`;
  const latenciesMs: number[] = [];
  for (let sample = 0; sample < SAMPLES; sample++) {
    const startedMs = performance.now();
    await sql`INSERT INTO bench_commits (at) VALUES (clock_timestamp())`;
    latenciesMs.push(performance.now() - startedMs);
  }
  return median(latenciesMs);
}

/**
 * Makes every commit of sessions that begin from now on wait 2 ms before it is written: a disk that takes
 * long to sync, without one. It is a setting of this database alone, and goes with it. False where the
 * account may not set it.
 */
export async function delayCommits(sql: Database): Promise<boolean> {
  const [row] = await sql<{ name: string }[]>`SELECT current_database() AS name`;
  try {
    await sql`ALTER DATABASE ${sql(row!.name)} SET commit_delay = 2000`;
    await sql`ALTER DATABASE ${sql(row!.name)} SET commit_siblings = 0`;
    return true;
  } catch {
    return false;
  }
}
