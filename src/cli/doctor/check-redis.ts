import { Redis } from "ioredis";
import { maskUrl } from "../../config/config-error.ts";
import { within } from "../within.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const NAME = "redis";
const TIMEOUT_MS = 2_000;
/** Scripts that see the time and write need the replication of effects, which older versions lack. */
const OLDEST_MAJOR = 5;

/** Whether Redis answers, takes writes, and keeps what it is told, where one is configured. */
export async function checkRedis(redisUrl: string | undefined): Promise<Finding[]> {
  if (redisUrl === undefined) return [];
  const address = maskUrl(redisUrl);
  const redis = new Redis(redisUrl, {
    lazyConnect: true,
    connectTimeout: TIMEOUT_MS,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  let reason: Error | undefined;
  redis.on("error", (error: Error) => {
    reason = error;
  });
  try {
    await within(TIMEOUT_MS, redis.connect());
    const findings = await within(TIMEOUT_MS, examineServer(redis, address));
    // A number of a database that the server does not have does not keep the driver from going on.
    if (reason !== undefined) throw reason;
    return findings;
  } catch (error) {
    return [wrong(NAME, `${address}: ${(reason ?? (error as Error)).message}`)];
  } finally {
    redis.disconnect();
  }
}

async function examineServer(redis: Redis, address: string): Promise<Finding[]> {
  const info = readInfo(await redis.info());
  const version = info.get("redis_version") ?? "of an unknown version";
  if (Number.parseInt(version, 10) < OLDEST_MAJOR) {
    return [wrong(NAME, `${address} is Redis ${version}; ${OLDEST_MAJOR} or later is needed`)];
  }
  if (info.get("role") === "slave") {
    return [wrong(NAME, `${address} is a replica, which takes no writes: name the primary`)];
  }
  return [ok(NAME, `${address}, Redis ${version}`), ...evictionFinding(info)];
}

/** Counters that are evicted admit too much until that is noticed. */
function evictionFinding(info: ReadonlyMap<string, string>): Finding[] {
  const policy = info.get("maxmemory_policy");
  if (policy === undefined || policy === "noeviction" || info.get("maxmemory") === "0") return [];
  const detail = `maxmemory-policy is ${policy}: a full Redis forgets rate limits; set noeviction`;
  return [{ name: NAME, state: "warning", detail }];
}

function readInfo(text: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const line of text.split("\r\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1));
  }
  return fields;
}
