import { testServices, warnOfSkippedTests } from "./services.ts";

interface TestRedis {
  readonly url: string;
  /** Keeps the keys of a test file apart from those of others on the same server. */
  readonly keyPrefix: string;
}

export const NO_REDIS_WARNING =
  "No Redis: tests that need one are skipped (an error if CI=true). Set TEST_REDIS_URL, start a Redis on 127.0.0.1:6379, or install redis-server.";

const NO_BINARY_WARNING =
  "No redis-server on the PATH: tests that kill one are skipped (an error if CI=true).";

/**
 * The Redis for tests, or undefined where there is none: then the tests that need it are to be
 * skipped with `describe.skipIf`.
 *
 * @throws where there is none and CI=true: a continuous integration must not skip in silence.
 */
export async function findTestRedis(): Promise<TestRedis | undefined> {
  const { redisUrl } = await testServices();
  if (redisUrl === undefined) {
    if (process.env.CI === "true") throw new Error(NO_REDIS_WARNING);
    warnOfSkippedTests(NO_REDIS_WARNING);
    return undefined;
  }
  return { url: redisUrl, keyPrefix: `test:${crypto.randomUUID()}:` };
}

/**
 * The program for a Redis of a test's own, which it may kill, or null where the tests that need one are to
 * be skipped.
 *
 * @throws where there is none and CI=true.
 */
export async function findRedisBinary(): Promise<string | null> {
  if ((await findTestRedis()) === undefined) return null;
  const binary = Bun.which("redis-server");
  if (binary !== null) return binary;
  if (process.env.CI === "true") throw new Error(NO_BINARY_WARNING);
  warnOfSkippedTests(NO_BINARY_WARNING);
  return null;
}
