import { existsSync, mkdtempSync, rmdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { Redis } from "ioredis";
import type { Database } from "../../../../db/client.ts";
import { findPostgresBinaries } from "../../../../db/embedded/folders.ts";
import { readMigrationState } from "../../../../db/migrate.ts";
import { lastHeartbeat, readServerVersion } from "../../../../db/queries/database-server.ts";
import { readFileFolderId } from "../../../../db/queries/files.ts";
import { isRestoreIncomplete, RESTORE_INCOMPLETE } from "../../../../db/queries/restore-mark.ts";
import { systemClock } from "../../../lib/clock.ts";
import { CLI } from "../../../lib/command-line.ts";
import { newId } from "../../../lib/ids.ts";
import { maskUrl } from "../../../platform/config/config-error.ts";
import type { GatewayConfig } from "../../../platform/config.ts";
import { examineKeyring, isSealed } from "../../../platform/master-key/master-key.ts";
import { readFolderMark, wrongFolder } from "../../../platform/storage/folder-mark.ts";
import type { FileStorage } from "../../../platform/storage/interface.ts";
import { S3Storage } from "../../../platform/storage/s3.ts";
import { knownMasterKeys, MasterKeyFiles } from "../../start/master-key.ts";
import { freePort, runningGateway } from "../../start/port.ts";
import { type DatabaseSettings, within, withServer } from "../operator-database.ts";

/** The result of one check. Only the state `wrong` prevents the gateway from working. */
export interface Finding {
  readonly name: string;
  readonly state: "ok" | "warning" | "wrong";
  readonly detail: string;
}

export function ok(name: string, detail: string): Finding {
  return { name, state: "ok", detail };
}

export function wrong(name: string, reason: unknown): Finding {
  const detail = reason instanceof Error ? reason.message : String(reason);
  return { name, state: "wrong", detail };
}

export function warning(name: string, detail: string): Finding {
  return { name, state: "warning", detail };
}

const REDIS_CHECK = "redis";
const REDIS_TIMEOUT_MS = 2_000;
/** Oldest supported major version of Redis. Older ones cannot run scripts that read the time and then write. */
const OLDEST_MAJOR = 5;

/** Checks that Redis, if configured, answers, accepts writes, and does not evict them. */
export async function checkRedis(redisUrl: string | undefined): Promise<Finding[]> {
  if (redisUrl === undefined) return [];
  const address = maskUrl(redisUrl);
  const redis = new Redis(redisUrl, {
    lazyConnect: true,
    connectTimeout: REDIS_TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  let reason: Error | undefined;
  redis.on("error", (error: Error) => {
    reason = error;
  });
  try {
    await within(REDIS_TIMEOUT_MS, redis.connect());
    const findings = await within(REDIS_TIMEOUT_MS, examineServer(redis, address));
    // The driver continues even if the server does not have the database of the given number.
    if (reason !== undefined) throw reason;
    return findings;
  } catch (error) {
    return [wrong(REDIS_CHECK, `${address}: ${(reason ?? (error as Error)).message}`)];
  } finally {
    redis.disconnect();
  }
}

async function examineServer(redis: Redis, address: string): Promise<Finding[]> {
  const info = readInfo(await redis.info());
  const version = info.get("redis_version") ?? "of an unknown version";
  if (Number.parseInt(version, 10) < OLDEST_MAJOR) {
    return [
      wrong(REDIS_CHECK, `${address} is Redis ${version}; ${OLDEST_MAJOR} or later is needed`),
    ];
  }
  if (info.get("role") === "slave") {
    return [wrong(REDIS_CHECK, `${address} is a replica, which rejects writes: use the primary`)];
  }
  return [ok(REDIS_CHECK, `${address}, Redis ${version}`), ...evictionFinding(info)];
}

/** Returns a warning if Redis can evict keys: without its counters, too much is admitted until the gateway notices. */
function evictionFinding(info: ReadonlyMap<string, string>): Finding[] {
  const policy = info.get("maxmemory_policy");
  if (policy === undefined || policy === "noeviction" || info.get("maxmemory") === "0") return [];
  const detail = `maxmemory-policy is ${policy}: a full Redis forgets rate limits; set noeviction`;
  return [{ name: REDIS_CHECK, state: "warning", detail }];
}

function readInfo(text: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const line of text.split("\r\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1));
  }
  return fields;
}

const STORAGE_CHECK = "file storage";
const STORAGE_TIMEOUT_MS = 5_000;

/** Checks that the bucket, if configured, stores, returns and deletes an object. */
export async function checkFileStorage({ s3 }: Pick<GatewayConfig, "s3">): Promise<Finding[]> {
  if (s3 === undefined) return [];
  try {
    await within(STORAGE_TIMEOUT_MS, tryOut(new S3Storage(s3, systemClock)));
    return [ok(STORAGE_CHECK, `bucket ${s3.bucket} stores, returns and deletes objects`)];
  } catch (error) {
    return [wrong(STORAGE_CHECK, `bucket ${s3.bucket}: ${(error as Error).message}`)];
  }
}

async function tryOut(storage: FileStorage): Promise<void> {
  const key = newId("obj");
  const writer = storage.write(key);
  await writer.write(new TextEncoder().encode(key));
  await writer.finish();
  const read = await new Response(await storage.read(key)).text();
  // Also lists unfinished uploads, which credentials often do not permit.
  await storage.remove(key);
  if (read !== key)
    throw new Error("the object that was read differs from the one that was written");
}

const FILES_CHECK = "file storage";

/** Checks that the folder of stored files is the one that the database records. Changes nothing. */
export async function checkFileFolder(sql: Database, root: string): Promise<Finding> {
  try {
    const known = await readFileFolderId(sql);
    if (known === undefined) return ok(FILES_CHECK, `${root}, used from the first file on`);
    const mark = await readFolderMark(root);
    return mark === known
      ? ok(FILES_CHECK, root)
      : wrong(FILES_CHECK, wrongFolder(root, mark, known));
  } catch (error) {
    return wrong(FILES_CHECK, error);
  }
}

const PORT_CHECK = "port";

/**
 * Checks that the gateway could listen.
 * @param isRunning true if a gateway runs on the database; it may be the process that uses the port
 */
export async function checkPort(config: GatewayConfig, isRunning: boolean): Promise<Finding> {
  const { host, port } = config;
  try {
    await freePort(config);
    return ok(PORT_CHECK, port === 0 ? `a free port on ${host}` : `${port} is free on ${host}`);
  } catch (error) {
    const isOurs = isRunning && port !== 0 && (await runningGateway(config)) !== undefined;
    return isOurs
      ? ok(PORT_CHECK, `the running gateway listens on ${port}`)
      : wrong(PORT_CHECK, error);
  }
}

const DATABASE_CHECK = "database";

/** Further checks of a database with the current schema. */
type FurtherLook = (sql: Database) => Promise<readonly Finding[]>;

/**
 * Checks that the database answers, is new enough, and has the current schema. Changes nothing in it. Starts an embedded
 * database for the duration of the check, but never creates one.
 */
export async function checkDatabase(
  settings: DatabaseSettings,
  log: (message: string) => void,
  lookFurther: FurtherLook = async () => [],
): Promise<Finding[]> {
  const { databaseUrl, dataDir } = settings;
  const address = databaseUrl === undefined ? "embedded" : maskUrl(databaseUrl);
  try {
    if (databaseUrl === undefined && !existsSync(join(dataDir, "postgres", "PG_VERSION"))) {
      const { majorVersion } = findPostgresBinaries();
      return [ok(DATABASE_CHECK, `embedded Postgres ${majorVersion}, created by the first start`)];
    }
    return await withServer(settings, log, (sql) => look(sql, address, lookFurther));
  } catch (error) {
    return [wrong(DATABASE_CHECK, `${address}: ${(error as Error).message}`)];
  }
}

async function look(sql: Database, address: string, lookFurther: FurtherLook): Promise<Finding[]> {
  const version = await readServerVersion(sql);
  const found = ok(DATABASE_CHECK, `${address}, Postgres ${version.text}`);
  return [found, ...(await lookAtSchema(sql, lookFurther))];
}

async function lookAtSchema(sql: Database, lookFurther: FurtherLook): Promise<Finding[]> {
  if (await isRestoreIncomplete(sql)) return [wrong("restore", RESTORE_INCOMPLETE)];
  const { pending, isNewer } = await readMigrationState(sql);
  if (pending.length > 0) {
    const detail = `${pending.length} to apply (${pending.join(", ")}): run "${CLI} migrate", or start the gateway`;
    return [wrong("migrations", detail)];
  }
  const migrations: Finding = isNewer
    ? { name: "migrations", state: "warning", detail: "applied by a newer version of the gateway" }
    : ok("migrations", "up to date");
  return [migrations, await lookForGateway(sql), ...(await lookFurther(sql))];
}

/** Milliseconds to wait for a heartbeat. A gateway sends one about every 250 ms. */
const LISTENING_MS = 1_500;
const POLL_MS = 100;

export const GATEWAY_RUNS = "running on this database";

/**
 * Reports whether a gateway is running. The row of a killed gateway has the state alive until another one declares it
 * dead, and its last heartbeat may be recent. So only a heartbeat during this check proves that a gateway is running.
 */
async function lookForGateway(sql: Database): Promise<Finding> {
  const name = "gateway";
  const first = await lastHeartbeat(sql);
  if (first === undefined) return ok(name, "not running");
  const deadlineMs = performance.now() + LISTENING_MS;
  while (performance.now() < deadlineMs) {
    await Bun.sleep(POLL_MS);
    const next = await lastHeartbeat(sql);
    if (next !== undefined && next.at !== first.at) return ok(name, GATEWAY_RUNS);
  }
  const seconds = Math.round(first.secondsAgo);
  return warning(
    name,
    `not running; the last one ended without an orderly stop, ${seconds} s ago, and the next start settles its requests`,
  );
}

const FOLDER_CHECK = "data folder";

/** Checks that the data folder is writable or can be created. Leaves no files. */
export function checkDataFolder(dataDir: string): Finding {
  try {
    const isThere = existsSync(dataDir);
    if (isThere && !statSync(dataDir).isDirectory())
      return wrong(FOLDER_CHECK, `${dataDir} is not a folder`);
    const folder = isThere ? dataDir : nearestFolder(dataDir);
    rmdirSync(mkdtempSync(join(folder, ".doctor-")));
    return ok(
      FOLDER_CHECK,
      isThere ? `${dataDir} is writable` : `${dataDir}, created by the first start`,
    );
  } catch (error) {
    return wrong(FOLDER_CHECK, `${dataDir} is not writable (${(error as { code?: string }).code})`);
  }
}

function nearestFolder(path: string): string {
  const parent = dirname(path);
  return existsSync(parent) || parent === path ? parent : nearestFolder(parent);
}

const MASTER_KEY_CHECK = "master key";
const SEALED_NAME = "sealed values";

/** Checks that a master key exists and that other users cannot read it. Creates none. */
export function checkMasterKey(config: GatewayConfig): Finding {
  if (config.masterKey !== undefined) return ok(MASTER_KEY_CHECK, "from GATEWAY_MASTER_KEY");
  const { path, nextPath } = new MasterKeyFiles(config.dataDir);
  try {
    if (knownMasterKeys(config) === undefined)
      return ok(MASTER_KEY_CHECK, "generated by the first start");
    const readable = [path, nextPath].find((file) => existsSync(file) && !isPrivate(file));
    if (readable === undefined) return ok(MASTER_KEY_CHECK, path);
    return {
      name: MASTER_KEY_CHECK,
      state: "warning",
      detail: `other users can read ${readable}: run chmod 600 on it`,
    };
  } catch (error) {
    return wrong(MASTER_KEY_CHECK, error);
  }
}

/** Checks that the key opens the sealed values of the database. Changes nothing. */
export async function checkSealedValues(sql: Database, config: GatewayConfig): Promise<Finding> {
  try {
    const keys = knownMasterKeys(config);
    if (keys === undefined) {
      if (!(await isSealed(sql))) return ok(SEALED_NAME, "none yet");
      const { path } = new MasterKeyFiles(config.dataDir);
      return wrong(SEALED_NAME, `their key ${path} is missing: restore it from a backup`);
    }
    const opened = await examineKeyring(sql, keys);
    if (opened === undefined) return ok(SEALED_NAME, "none yet");
    if (!opened.isBeingReplaced) return ok(SEALED_NAME, "the master key opens them");
    const detail = `the master key is being replaced: ${CLI} master-key rotate`;
    return { name: SEALED_NAME, state: "warning", detail };
  } catch (error) {
    return wrong(SEALED_NAME, error);
  }
}

function isPrivate(path: string): boolean {
  return process.platform === "win32" || (statSync(path).mode & 0o077) === 0;
}
