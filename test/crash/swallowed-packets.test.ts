import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { findTestRedis } from "../support/redis.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { IS_THOROUGH } from "../support/thorough.ts";
import { until } from "../support/until.ts";
import { seededRandom } from "../upstream/random.ts";
import { auditOf } from "./audit.ts";
import { exitOf, firstKeys, type GatewayProcess, Grounds, holdsEnded } from "./gateway-process.ts";
import { KINDS, prepareKinds } from "./kinds.ts";
import { Load, receive, type Sent, sentOf } from "./load.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/*
 * A network that drops packets silently: connections to the database exist, nothing arrives on them, and
 * no side gets an error. Afterwards they work again, or never, as when a firewall has dropped their state.
 */

const TIMEOUT_MS = 60_000;
const WORKERS = 12;
const LOAD_BEFORE_MS = 600;
const LOAD_AFTER_MS = 1_000;
const OUTAGE_MS = 4_500;
const PROBE_INTERVAL_MS = 250;
/** How long a refusal, and the return to work once packets flow again, may take. */
const PATIENCE_MS = 2_000;
/** What the machine may add to them, beyond the waiting for a processor. */
const TOLERANCE_MS = 1_000;

const grounds = new Grounds("swallowed-packets");
const configPath = join(grounds.folder, "gateway.config.json");
let upstream: UpstreamProcess;
let database: TestDatabase;
let network: CuttingProxy;
let gateway: GatewayProcess;
let baseUrl: string;
let key: string;
let load: Load;

beforeAll(async () => {
  upstream = await startUpstreamProcess();
  await prepareKinds(upstream, configPath);
});
/** A gateway under load; with Redis as one of several. */
async function start(redis?: { readonly url: string }): Promise<void> {
  database = await createTestDatabase();
  network = await startCuttingProxy(database.url);
  const dataDir = grounds.newDataDir();
  gateway = grounds.launch({
    dataDir,
    environment: {
      GATEWAY_CONFIG: configPath,
      DATABASE_URL: network.url,
      GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      ...(redis && { REDIS_URL: redis.url }),
    },
  });
  baseUrl = await gateway.listening;
  key = firstKeys(dataDir).secret_key;
  load = new Load({
    workers: WORKERS,
    random: seededRandom(7),
    keys: [{ secret: key, weight: 1 }],
  });
  load.open(baseUrl);
  await Bun.sleep(LOAD_BEFORE_MS);
}
afterEach(async () => {
  await network.stop();
  await database.drop();
});
afterAll(async () => {
  await grounds.clear();
  await upstream.stop();
});

async function send(kindName = "plain"): Promise<Sent> {
  const sent = sentOf(crypto.randomUUID(), KINDS.find(({ name }) => name === kindName)!);
  const elapsedMs = startStopwatch(gateway.pid, upstream.pid);
  await receive(sent, baseUrl, key);
  sent.tookMs = elapsedMs();
  return sent;
}

/** Each of them is refused, as is said, in time. */
async function probe(forMs: number): Promise<Promise<Sent>[]> {
  const probes: Promise<Sent>[] = [];
  const untilMs = performance.now() + forMs;
  while (performance.now() < untilMs) {
    probes.push(send());
    await Bun.sleep(PROBE_INTERVAL_MS);
  }
  return probes;
}

function expectRefused(probes: readonly Sent[]): void {
  expect(probes.length).toBeGreaterThan(5);
  for (const { status, errorCode, retryAfter, tookMs } of probes) {
    expect({ status, errorCode }).toEqual({ status: 503, errorCode: "database_unavailable" });
    expect(retryAfter).toMatch(/^[1-9]\d*$/);
    expect(tookMs).toBeLessThan(PATIENCE_MS + TOLERANCE_MS);
  }
}

/** How long until a request is answered again, tried without a pause. */
async function untilAnswered(kindName?: string): Promise<number> {
  const elapsedMs = startStopwatch(gateway.pid, upstream.pid);
  await Promise.any(
    Array.from({ length: 20 }, async (_, i) => {
      await Bun.sleep(i * 100);
      const sent = await send(kindName);
      if (!sent.isWhole) throw new Error(sent.errorCode);
    }),
  );
  return elapsedMs();
}

async function expectBooksRight(): Promise<void> {
  await Bun.sleep(LOAD_AFTER_MS);
  await load.end();
  const sent = load.takeFinished();
  await holdsEnded(baseUrl);
  expect(await auditOf(database.url, upstream, sent)).toEqual([]);
  const lost = sent.filter(
    ({ kind, isWhole, hasContent }) =>
      hasContent && kind.tokens !== undefined && kind.leavesAfterTokens === undefined && !isWhole,
  );
  expect(lost.map((one) => [one.tag, one.kind.name, one.errorCode])).toEqual([]);
  gateway.signal("SIGTERM");
  expect(await exitOf(gateway)).toBe(0);
}

for (const earlier of ["kept", "lost"] as const) {
  test.skipIf(earlier === "lost" && !IS_THOROUGH)(
    `while everything is swallowed requests are refused in time, and ${earlier === "kept" ? "what arrives late" : "what never arrives"} keeps nothing from going on`,
    async () => {
      await start();
      network.swallow();
      // At first it may only be known that a charge does not become durable.
      await Bun.sleep(PROBE_INTERVAL_MS);
      const probes = await probe(OUTAGE_MS - PATIENCE_MS);
      expectRefused(await Promise.all(probes));
      network.letThrough(earlier);
      expect(await untilAnswered()).toBeLessThan(PATIENCE_MS + TOLERANCE_MS);
      await expectBooksRight();
    },
    TIMEOUT_MS,
  );
}

test(
  "a connection of the heartbeats that dies without a word is made anew: nothing is admitted meanwhile, and soon everything again",
  async () => {
    await start();
    network.swallow("gateway-lock");
    await Bun.sleep(PATIENCE_MS);
    expectRefused(await Promise.all(await probe(PATIENCE_MS)));
    network.letThrough("lost");
    expect(await untilAnswered()).toBeLessThan(PATIENCE_MS + TOLERANCE_MS);
    await expectBooksRight();
  },
  TIMEOUT_MS,
);

const redis = await findTestRedis();
for (const [use, kindName, deploymentMode] of [
  ["ledger", "plain", "single-node"],
  ["ledger", "plain", "one of several"],
  // Claims of idempotency keys go over the pool.
  ["pool", "insistent", "single-node"],
] as const) {
  test.skipIf(deploymentMode !== "single-node" && (redis === undefined || !IS_THOROUGH))(
    `connections of the ${use} of a gateway that is ${deploymentMode} die without a word and are made anew within two seconds, and nothing is lost or doubled`,
    async () => {
      await start(deploymentMode === "single-node" ? undefined : redis);
      network.swallow(`gateway-${use}`);
      await until("something is swallowed", () => network.silenced > 0);
      network.letThrough("lost");
      expect(await untilAnswered(kindName)).toBeLessThan(PATIENCE_MS + TOLERANCE_MS);
      await expectBooksRight();
    },
    TIMEOUT_MS,
  );
}
