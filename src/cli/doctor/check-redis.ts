import { Redis } from "ioredis";
import { maskUrl } from "../../config/config-error.ts";
import { within } from "../within.ts";
import { type Finding, wrong } from "./finding.ts";

const NAME = "redis";
const TIMEOUT_MS = 2_000;

/** Whether Redis answers, where one is configured. */
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
    await within(
      TIMEOUT_MS,
      redis.connect().then(() => redis.ping()),
    );
    return [
      wrong(
        NAME,
        `${address} answers, but this version runs as a single instance and does not start with it: unset REDIS_URL`,
      ),
    ];
  } catch (error) {
    return [wrong(NAME, `${address}: ${(reason ?? (error as Error)).message}`)];
  } finally {
    redis.disconnect();
  }
}
