import { readdirSync, readFileSync } from "node:fs";
import type { Redis } from "ioredis";
import type { Database } from "../../db/client.ts";
import { readUsage } from "./process-usage.ts";

/** What must not grow, by its name; bytes are in MB. */
export type Sample = ReadonlyMap<string, number>;

interface Watched {
  readonly gatewayPids: readonly number[];
  readonly sql: Database;
  readonly redis: Redis;
}

const BYTES_PER_MB = 1024 * 1024;

export async function takeSample({ gatewayPids, sql, redis }: Watched): Promise<Sample> {
  const sample = new Map<string, number>();
  for (const [index, pid] of gatewayPids.entries()) {
    const name = `gateway ${index + 1}`;
    sample.set(`${name}: resident MB`, readUsage(pid).residentMb);
    sample.set(`${name}: descriptors`, readdirSync(`/proc/${pid}/fd`).length);
    sample.set(`${name}: threads`, readdirSync(`/proc/${pid}/task`).length);
    sample.set(`${name}: children`, childrenOf(pid));
  }
  const [connections] = await sql<{ count: number }[]>`
    SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = current_database()`;
  sample.set("Postgres: connections", connections!.count);
  const info = await redis.info();
  sample.set("Redis: MB", Number(/used_memory:(\d+)/.exec(info)?.[1]) / BYTES_PER_MB);
  sample.set("Redis: clients", Number(/connected_clients:(\d+)/.exec(info)?.[1]));
  sample.set("Redis: keys", await redis.dbsize());
  return sample;
}

function childrenOf(pid: number): number {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean)
    .length;
}

export interface TableSize {
  readonly name: string;
  readonly bytes: number;
  readonly rows: number;
}

/** Every table with its indexes and long values, and how many rows it has. */
export async function readTableSizes(sql: Database): Promise<TableSize[]> {
  const tables = await sql<{ name: string; bytes: number }[]>`
    SELECT relname AS name, pg_total_relation_size(oid)::float8 AS bytes
    FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`;
  return await Promise.all(
    tables.map(async ({ name, bytes }) => {
      const [row] = await sql<{ rows: number }[]>`
        SELECT count(*)::float8 AS rows FROM ${sql(name)}`;
      return { name, bytes, rows: row!.rows };
    }),
  );
}
