import { chmodSync, existsSync, mkdtempSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import postgres from "postgres";
import { readPostgresUrl } from "../../db/client.ts";
import { type EmbeddedPostgresOptions, startEmbeddedPostgres } from "../../db/embedded.ts";
import { migrate } from "../../db/migrate.ts";
import { copyDatabase } from "./migrated-data-dir.ts";
import { RedisServer, redisAnswers } from "./redis-server.ts";
import { databaseUrl, type TestServices } from "./services.ts";

/*
 * A process of its own that holds what a test run needs, a Postgres and a Redis: prepares them, says
 * where they are in one line of JSON, and clears everything away when its standard input ends, which
 * the kernel sees to however the test run dies.
 */

const DEFAULT_REDIS_URL = "redis://127.0.0.1:6379";
/** A file system in memory, and what must be free in it and of memory: a run fills about half a gigabyte. */
const MEMORY_FOLDER = "/dev/shm";
const FREE_FOLDER_BYTES = 2 ** 31;
const FREE_MEMORY_BYTES = 6 * 2 ** 30;

/** Undone last to first. */
const cleanups: (() => Promise<void> | void)[] = [];
const log = (message: string) => console.error(`[test services] ${message}`);

async function prepareDatabase(folder: string): Promise<Omit<TestServices, "redisUrl">> {
  const external = process.env.TEST_DATABASE_URL;
  if (external) {
    const created = await createTemplate(external, "template1");
    await migrate({ url: databaseUrl(external, created.template) });
    return { serverUrl: external, ...created };
  }
  const migratedDataDir = join(folder, "migrated");
  const first = await startEmbeddedPostgres(embeddedOptions(migratedDataDir));
  await migrate({ url: first.url });
  await first.stop();
  const dataDir = join(folder, "data");
  await copyDatabase(migratedDataDir, dataDir);
  const server = await startEmbeddedPostgres(embeddedOptions(dataDir));
  cleanups.push(() => server.stop());
  const created = await createTemplate(server.url, new URL(server.url).pathname.slice(1));
  return { serverUrl: server.url, migratedDataDir, ...created };
}

/** Tests kill processes, not the machine, so nothing needs to reach the disk. */
function embeddedOptions(dataDir: string): EmbeddedPostgresOptions {
  return {
    dataDir,
    log: () => {},
    transport: "tcp",
    settings: { fsync: "off", full_page_writes: "off", max_connections: "300" },
  };
}

/** Databases that begin with the prefix are dropped at the end, before the server is stopped. */
async function createTemplate(
  serverUrl: string,
  source: string,
): Promise<Pick<TestServices, "template" | "prefix">> {
  const prefix = `gateway_test_${Buffer.from(crypto.getRandomValues(new Uint8Array(6))).toString("hex")}`;
  const template = `${prefix}_template`;
  const address = readPostgresUrl(serverUrl);
  const sql = postgres(address.url, { path: address.path, max: 1, onnotice: () => {} });
  cleanups.push(async () => {
    const databases = await sql<{ datname: string }[]>`
      SELECT datname FROM pg_database WHERE starts_with(datname, ${prefix})`;
    for (const { datname } of databases) {
      await sql`DROP DATABASE IF EXISTS ${sql(datname)} WITH (FORCE)`;
    }
    await sql.end({ timeout: 1 });
  });
  await sql`CREATE DATABASE ${sql(template)} TEMPLATE ${sql(source)}`;
  return { template, prefix };
}

/**
 * In memory where there is plenty of it. Each test file makes and removes a database of a thousand files, and
 * ext4 looks at every file that was removed a minute ago before it makes another: three quarters of the time
 * that a new database takes.
 */
function scratchFolder(): string {
  if (!existsSync(MEMORY_FOLDER) || process.availableMemory() < FREE_MEMORY_BYTES) return tmpdir();
  const { bavail, bsize } = statfsSync(MEMORY_FOLDER);
  return bavail * bsize < FREE_FOLDER_BYTES ? tmpdir() : MEMORY_FOLDER;
}

/** The one that TEST_REDIS_URL names, or that runs already, or one started here, or none. */
async function prepareRedis(): Promise<string | undefined> {
  const wanted = process.env.TEST_REDIS_URL;
  if (wanted) {
    if (await redisAnswers(wanted)) return wanted;
    throw new Error(`TEST_REDIS_URL=${wanted} does not answer`);
  }
  if (await redisAnswers(DEFAULT_REDIS_URL)) return DEFAULT_REDIS_URL;
  const binary = Bun.which("redis-server");
  if (binary === null) return undefined;
  const server = await RedisServer.start(binary);
  cleanups.push(() => server.kill());
  return server.url;
}

async function cleanUp(): Promise<void> {
  for (const cleanup of cleanups.reverse()) {
    try {
      await cleanup();
    } catch (error) {
      log((error as Error).message);
    }
  }
}

// Bun ends the children of a test that took too long, or of a file under --isolate. Others go on.
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, () => {});
const folder = mkdtempSync(join(scratchFolder(), "gateway-test-"));
// As root the server runs as another user, who has to pass through.
chmodSync(folder, 0o711);
cleanups.push(() => {
  if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
});
try {
  const [database, redisUrl] = await Promise.all([prepareDatabase(folder), prepareRedis()]);
  const services: TestServices = { ...database, redisUrl };
  process.stdout.write(`${JSON.stringify(services)}\n`);
  for await (const _ of Bun.stdin.stream()) {
    // Nothing is sent: only its end counts.
  }
} catch (error) {
  log((error as Error).message);
  process.exitCode = 1;
}
await cleanUp();
