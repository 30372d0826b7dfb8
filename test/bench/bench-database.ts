import { connectDatabase, type Database } from "../../db/client.ts";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";

export interface BenchDatabase {
  /** `DATABASE_URL` of the gateway; undefined: the embedded one. */
  readonly url: string | undefined;
  /** A connection of the benchmark's own, while the gateway runs. */
  connect(): Database;
  drop(): Promise<void>;
}

/** The embedded database of the gateway's data folder, or a fresh one on a given server. */
export async function prepareDatabase(
  serverUrl: string | undefined,
  dataDir: string,
): Promise<BenchDatabase> {
  if (serverUrl === undefined) {
    return {
      url: undefined,
      connect() {
        const url = findRunningEmbeddedPostgres(dataDir);
        if (url === undefined) throw new Error("the embedded Postgres does not run");
        return open(url);
      },
      drop: async () => {},
    };
  }
  const name = `gateway_bench_${crypto.randomUUID().slice(0, 8)}`;
  await onServer(serverUrl, (sql) => sql`CREATE DATABASE ${sql(name)}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return {
    url: url.href,
    connect: () => open(url.href),
    drop: () =>
      onServer(serverUrl, (sql) => sql`DROP DATABASE IF EXISTS ${sql(name)} WITH (FORCE)`),
  };
}

/** Its version, and whether commits reach the disk. */
export async function describeDatabase(sql: Database): Promise<string> {
  const [row] = await sql<{ version: string; fsync: string; commit: string }[]>`
    SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
      current_setting('synchronous_commit') AS commit`;
  return `Postgres ${row?.version}, fsync ${row?.fsync}, synchronous_commit ${row?.commit}`;
}

function open(url: string): Database {
  return connectDatabase({ url }, { poolSize: 1, applicationName: "gateway-bench" });
}

async function onServer(url: string, work: (sql: Database) => PromiseLike<unknown>): Promise<void> {
  const sql = open(url);
  try {
    await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}
