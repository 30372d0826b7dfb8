import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { exitOf, firstKeys, type GatewayProcess, Grounds } from "../crash/gateway-process.ts";
import { createTestDatabase } from "../support/database.ts";
import { findTestRedis } from "../support/redis.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { until } from "../support/until.ts";
import { chat } from "./client.ts";
import { workersOf } from "./worker-pids.ts";

const TIMEOUT_MS = 60_000;
const START_MS = 20_000;
const STANDSTILL_MS = 10_000;
const redis = await findTestRedis();
const grounds = new Grounds("workers");
afterAll(() => grounds.clear());

describe("a start that is not understood is refused with one line", () => {
  test.each([
    [["--workers", "2"], "REDIS_URL"],
    [["--workers", "0"], '--workers is "0", but must be a whole number from 1 to 64'],
    [["--worker=2"], "--workers N"],
  ])("%p", async (parameters, accepted) => {
    const gateway = grounds.launch({ dataDir: grounds.newDataDir(), parameters });
    expect(await exitOf(gateway)).toBe(1);
    expect(gateway.stderr().trimEnd().split("\n")).toHaveLength(1);
    expect(gateway.stderr()).toContain(accepted);
  });
});

const isAlive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

describe.skipIf(redis === undefined || process.platform !== "linux")("workers", () => {
  let gateway: GatewayProcess;
  let baseUrl: string;
  let key: string;
  beforeAll(async () => {
    const dataDir = await grounds.newDataDirWithDatabase();
    gateway = grounds.launch({
      dataDir,
      parameters: ["--workers", "2"],
      environment: { REDIS_URL: redis!.url, GATEWAY_SHUTDOWN_GRACE_MS: "500" },
    });
    baseUrl = await gateway.listening;
    const keys = firstKeys(dataDir);
    expect(keys.base_url).toBe(baseUrl);
    key = keys.secret_key;
  }, TIMEOUT_MS);
  afterAll(async () => {
    const last = workersOf(gateway);
    gateway.signal("SIGTERM");
    expect(await exitOf(gateway)).toBe(0);
    expect(last.filter(isAlive)).toEqual([]);
  }, TIMEOUT_MS);

  const othersThan = (gone: number) =>
    until(
      "another one has taken its place",
      () => workersOf(gateway).length === 2 && !workersOf(gateway).includes(gone),
      STANDSTILL_MS + START_MS,
    );

  async function scrape() {
    const headers = { connection: "close" };
    const text = await (await fetch(`${baseUrl}/metrics`, { headers })).text();
    const samples = text.split("\n").filter((line) => !line.startsWith("#"));
    const sum = (pattern: RegExp) =>
      samples
        .filter((line) => pattern.test(line))
        .reduce((total, line) => total + Number(line.slice(line.lastIndexOf(" "))), 0);
    return {
      calls: sum(/^gateway_requests_total\{.*chat\/completions/),
      workers: sum(/^gateway_workers /),
      answered: sum(/^gateway_workers_answered /),
    };
  }

  test(
    "answer for all of them when metrics are asked for, within a second also where one stands still",
    async () => {
      const CALLS = 24;
      const { calls: before } = await scrape();
      for (let n = 0; n < CALLS; n++) expect((await chat(baseUrl, key)).status).toBe(200);
      const calls = before + CALLS;
      for (let n = 0; n < 8; n++) {
        expect(await scrape()).toEqual({ calls, workers: 2, answered: 2 });
      }
      const [stuck] = workersOf(gateway);
      process.kill(stuck!, "SIGSTOP");
      const elapsedMs = startStopwatch(...workersOf(gateway).slice(1), gateway.pid);
      // The kernel hands some of the connections to the one that stands still.
      const found = await Promise.any(Array.from({ length: 10 }, scrape));
      const tookMs = elapsedMs();
      process.kill(stuck!, "SIGCONT");
      expect(found).toEqual({ calls, workers: 2, answered: 1 });
      expect(tookMs).toBeLessThan(1_900);
    },
    TIMEOUT_MS,
  );

  test(
    "share a port and an embedded database, and come back when they die",
    async () => {
      const send = () =>
        chat(baseUrl, key).then(
          ({ status }) => status,
          () => "none",
        );
      const [dying] = workersOf(gateway);
      expect(await send()).toBe(200);
      process.kill(dying!, "SIGKILL");
      await othersThan(dying!);
      await until("the parent says so", () =>
        gateway.stdout().includes("the next one starts in 100 ms"),
      );
      await until("the port is served", async () => (await send()) === 200, START_MS);
    },
    TIMEOUT_MS,
  );

  test(
    "are replaced where they stand still, so that no connection waits at one for ever",
    async () => {
      const [still, other] = workersOf(gateway) as [number, number];
      process.kill(still, "SIGSTOP");
      await othersThan(still);
      await until("the parent says so", () =>
        gateway.stdout().includes(`worker ${still} does not respond; killing it`),
      );
      expect(workersOf(gateway)).toContain(other);
    },
    TIMEOUT_MS,
  );

  test(
    "end when their parent is killed",
    async () => {
      const database = await createTestDatabase();
      const gateway = grounds.launch({
        dataDir: grounds.newDataDir(),
        parameters: ["--workers=2"],
        environment: {
          REDIS_URL: redis!.url,
          DATABASE_URL: database.url,
          GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
          GATEWAY_SHUTDOWN_GRACE_MS: "500",
        },
      });
      await gateway.listening;
      const workers = workersOf(gateway);
      expect(workers).toHaveLength(2);
      gateway.signal("SIGKILL");
      await gateway.exited;
      await until("they have ended", () => !workers.some(isAlive), START_MS);
      await database.drop();
    },
    TIMEOUT_MS,
  );
});
