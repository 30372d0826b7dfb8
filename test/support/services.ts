import { join } from "node:path";

/** What tests use: a Postgres server with a migrated template database, and a Redis if there is one. */
export interface TestServices {
  readonly serverUrl: string;
  readonly template: string;
  /** Databases whose names begin so are dropped at the end of the run. */
  readonly prefix: string;
  readonly redisUrl?: string | undefined;
  /** A data folder whose cluster is migrated and not running; none where TEST_DATABASE_URL is set. */
  readonly migratedDataDir?: string | undefined;
}

export interface RunningTestServices {
  readonly services: TestServices;
  /** Clears everything away. It happens without this call too, when this process ends. */
  stop(): Promise<void>;
}

/** Carries the services from test/run.ts to the processes that run tests. */
const VARIABLE = "GATEWAY_TEST_SERVICES";

export async function startTestServices(): Promise<RunningTestServices> {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "test-services.ts")], {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
    env: process.env,
    // Out of reach of Ctrl-C: it has to outlive the tests to clear up behind them.
    detached: true,
  });
  const line = await readLine(child.stdout);
  if (line === undefined) throw new Error("the services for the tests did not start");
  child.unref();
  const services = JSON.parse(line) as TestServices;
  process.env[VARIABLE] = line;
  return {
    services,
    async stop() {
      await child.stdin.end();
      await child.exited;
    },
  };
}

let ownServices: Promise<RunningTestServices> | undefined;

/** Those of the run, or, where one test file runs alone, ones that end with this process. */
export async function testServices(): Promise<TestServices> {
  const given = process.env[VARIABLE];
  if (given !== undefined) return JSON.parse(given) as TestServices;
  ownServices ??= startTestServices();
  return (await ownServices).services;
}

/** Warns of skipped tests of a file that runs alone. test/run.ts says it once for all files. */
export function warnOfSkippedTests(text: string): void {
  if (process.env[VARIABLE] === undefined) console.warn(text);
}

export function databaseUrl(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}

async function readLine(stream: ReadableStream<Uint8Array>): Promise<string | undefined> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (!text.includes("\n")) {
    const { value, done } = await reader.read();
    if (done) return undefined;
    text += decoder.decode(value, { stream: true });
  }
  return text.slice(0, text.indexOf("\n"));
}
