import { Redis } from "ioredis";
import type { Database } from "../../../db/client.ts";
import { readFileFolderId } from "../../../db/queries/files.ts";
import { maskUrl } from "../../config/config-error.ts";
import type { GatewayConfig } from "../../config.ts";
import { systemClock } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import { baseUrl } from "../../start/first-keys.ts";
import { freePort } from "../../start/serve.ts";
import { readFolderMark, wrongFolder } from "../../storage/folder-mark.ts";
import type { FileStorage } from "../../storage/interface.ts";
import { S3Storage } from "../../storage/s3.ts";
import { within } from "../operator-database.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const REDIS_CHECK = "redis";
const REDIS_TIMEOUT_MS = 2_000;
/** Scripts that see the time and write need the replication of effects, which older versions lack. */
const OLDEST_MAJOR = 5;

/** Whether Redis answers, takes writes, and keeps them, if one is configured. */
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
    // A number of a database that the server does not have does not keep the driver from going on.
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
    return [wrong(REDIS_CHECK, `${address} is a replica, which takes no writes: name the primary`)];
  }
  return [ok(REDIS_CHECK, `${address}, Redis ${version}`), ...evictionFinding(info)];
}

/** Counters that are evicted admit too much until that is noticed. */
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

/** Whether the bucket takes an object, gives it back, and lets it be removed, where one is configured. */
export async function checkFileStorage({ s3 }: Pick<GatewayConfig, "s3">): Promise<Finding[]> {
  if (s3 === undefined) return [];
  try {
    await within(STORAGE_TIMEOUT_MS, tryOut(new S3Storage(s3, systemClock)));
    return [ok(STORAGE_CHECK, `bucket ${s3.bucket} takes, gives and removes`)];
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
  // Looks for unfinished uploads too, for which credentials often lack the right.
  await storage.remove(key);
  if (read !== key) throw new Error("what was read is not what was written");
}

const FILES_CHECK = "file storage";

/** Whether the folder for stored files is the one in which the database's files lie. Changes nothing. */
export async function checkFileFolder(sql: Database, root: string): Promise<Finding> {
  try {
    const known = await readFileFolderId(sql);
    if (known === undefined) return ok(FILES_CHECK, `${root}, from the first file on`);
    const mark = await readFolderMark(root);
    return mark === known
      ? ok(FILES_CHECK, root)
      : wrong(FILES_CHECK, wrongFolder(root, mark, known));
  } catch (error) {
    return wrong(FILES_CHECK, error);
  }
}

const PORT_CHECK = "port";
const ANSWER_TIMEOUT_MS = 1_000;

/**
 * Whether the gateway could listen.
 * @param isRunning a gateway runs on the database, and may be the one that has the port
 */
export async function checkPort(config: GatewayConfig, isRunning: boolean): Promise<Finding> {
  const { host, port } = config;
  try {
    freePort(config);
    return ok(PORT_CHECK, port === 0 ? `a free one on ${host}` : `${port} is free on ${host}`);
  } catch (error) {
    const isOurs = isRunning && port !== 0 && (await answersAsGateway(config));
    return isOurs
      ? ok(PORT_CHECK, `the gateway that runs listens on ${port}`)
      : wrong(PORT_CHECK, error);
  }
}

async function answersAsGateway(config: GatewayConfig): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const response = await fetch(`${baseUrl(config)}/healthz`, { signal, redirect: "manual" });
    return response.ok && response.headers.has("x-gateway-request-id");
  } catch {
    return false;
  }
}
