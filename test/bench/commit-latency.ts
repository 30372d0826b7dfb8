import type { Database } from "../../db/client.ts";
import { median } from "./compare.ts";

const SAMPLES = 200;

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
