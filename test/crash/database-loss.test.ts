import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase } from "../support/database.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { until } from "../support/until.ts";
import { seededRandom } from "../upstream/random.ts";
import { auditOf } from "./audit.ts";
import { look } from "./books.ts";
import {
  exitOf,
  firstKeys,
  type GatewayProcess,
  Grounds,
  holdsEnded,
  killServer,
  serverPid,
  signalServer,
} from "./gateway-process.ts";
import { KINDS, prepareKinds } from "./kinds.ts";
import { Load, receive, type Sent, sentOf } from "./load.ts";
import { startUpstreamProcess, type UpstreamProcess } from "./upstream-process.ts";

/*
 * The database goes away under a gateway that stays: killed, which its supervisor mends within a second
 * or so, or frozen, which looks to clients like a network that swallows everything.
 */

const TIMEOUT_MS = 60_000;
const WORKERS = 16;
const LOAD_BEFORE_MS = 600;
const FROZEN_MS = 4_000;
const LOAD_AFTER_MS = 1_500;
const SHORT_OUTAGE_MS = 500;
const PROBES = 12;
const PROBE_INTERVAL_MS = 150;
/** How long a refusal, and the return to work once the database answers, may take. */
const PATIENCE_MS = 2_000;
/** For the supervisor, who looks once a second, and the database's recovery. */
const REVIVAL_TIMEOUT_MS = 15_000;
/** What the machine may add to them, beyond the waiting for a processor. */
const TOLERANCE_MS = 1_000;

const grounds = new Grounds("database-loss");
const configPath = join(grounds.folder, "gateway.config.json");
let upstream: UpstreamProcess;
let dataDir: string;
let gateway: GatewayProcess;
let baseUrl: string;
let load: Load;

beforeAll(async () => {
  upstream = await startUpstreamProcess();
  await prepareKinds(upstream, configPath);
});
async function start(environment: Record<string, string> = {}): Promise<void> {
  dataDir = grounds.newDataDir();
  gateway = grounds.launch({
    dataDir,
    environment: { GATEWAY_CONFIG: configPath, ...environment },
  });
  baseUrl = await gateway.listening;
}

/** On a database that is reached through a network that breaks on command. */
async function startBehindNetwork() {
  const database = await createTestDatabase();
  const network = await startCuttingProxy(database.url);
  await start({
    DATABASE_URL: network.url,
    GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
  });
  const stop = async () => {
    gateway.signal("SIGTERM");
    expect(await exitOf(gateway)).toBe(0);
    await network.stop();
    await database.drop();
  };
  return { database, network, stop };
}

async function startUnderLoad(): Promise<void> {
  await start();
  load = new Load({
    workers: WORKERS,
    random: seededRandom(5),
    keys: [{ secret: firstKeys(dataDir).secret_key, weight: 1 }],
    pids: [gateway.pid, upstream.pid],
  });
  load.open(baseUrl);
  await Bun.sleep(LOAD_BEFORE_MS);
}

afterAll(async () => {
  await grounds.clear();
  await upstream.stop();
});

/** Ends the load and holds the books against all of it; returns what was sent. */
async function settledLoad(): Promise<Sent[]> {
  await load.end();
  const sent = load.takeFinished();
  await holdsEnded(baseUrl);
  expect(await auditOf(findRunningEmbeddedPostgres(dataDir)!, upstream, sent)).toEqual([]);
  return sent;
}

/** Streams that were running at that time, and would have ended well without the outage. */
const streamsAt = (sent: readonly Sent[], atMs: number) =>
  sent.filter(
    ({ kind, hasContent, startedAtMs, endedAtMs }) =>
      kind.stream &&
      kind.tokens !== undefined &&
      kind.leavesAfterTokens === undefined &&
      hasContent &&
      startedAtMs < atMs &&
      endedAtMs > atMs,
  );

/** A request outside the load. */
async function send(
  kindName: string,
  tag: string = crypto.randomUUID(),
  key = firstKeys(dataDir).secret_key,
): Promise<Sent> {
  const sent = sentOf(tag, KINDS.find(({ name }) => name === kindName)!);
  const elapsedMs = startStopwatch(gateway.pid, upstream.pid);
  await receive(sent, baseUrl, key);
  sent.tookMs = elapsedMs();
  return sent;
}

function expectRefusalsInTime(sent: readonly Sent[]): Sent[] {
  const refused = sent.filter(({ errorCode }) => errorCode === "database_unavailable");
  for (const { status, retryAfter, tookMs } of refused) {
    expect(status).toBe(503);
    expect(retryAfter).toMatch(/^[1-9]\d*$/);
    expect(tookMs).toBeLessThan(PATIENCE_MS + TOLERANCE_MS);
  }
  return refused;
}

/** When the first request that began after that time was answered whole. */
const firstAnswerAfter = (sent: readonly Sent[], atMs: number) =>
  Math.min(
    ...sent
      .filter(({ isWhole, startedAtMs }) => isWhole && startedAtMs > atMs)
      .map(({ endedAtMs }) => endedAtMs),
  );

test(
  "a database killed under load is started again beside the running gateway, and nothing is lost",
  async () => {
    await startUnderLoad();
    const killedPid = serverPid(dataDir);
    const killedAtMs = performance.now();
    killServer(dataDir);
    await until(
      "another server takes connections",
      () => serverPid(dataDir) !== killedPid && findRunningEmbeddedPostgres(dataDir) !== undefined,
      REVIVAL_TIMEOUT_MS,
    );
    const servingAtMs = performance.now();
    const elapsedMs = startStopwatch(gateway.pid, upstream.pid);
    await Bun.sleep(PATIENCE_MS + TOLERANCE_MS);
    const waitedMs = performance.now() - servingAtMs - elapsedMs();
    const sent = await settledLoad();
    expectRefusalsInTime(sent);
    expect(firstAnswerAfter(sent, killedAtMs) - servingAtMs).toBeLessThan(
      PATIENCE_MS + TOLERANCE_MS + waitedMs,
    );
    const running = streamsAt(sent, killedAtMs);
    expect(running.length).toBeGreaterThan(0);
    expect(running.filter(({ isWhole }) => !isWhole)).toEqual([]);
    expect(await Promise.race([gateway.exited, "it still runs"])).toBe("it still runs");
  },
  TIMEOUT_MS,
);

test.skipIf(process.platform !== "linux")(
  "a database that does not answer for some seconds makes requests 503 in time, holds streams until it is back, and costs nothing",
  async () => {
    await startUnderLoad();
    const frozenAtMs = performance.now();
    await signalServer(dataDir, "SIGSTOP");
    const probes: Promise<Sent>[] = [];
    for (let n = 0; n < PROBES; n++) {
      probes.push(send("plain"));
      await Bun.sleep(PROBE_INTERVAL_MS);
    }
    await Bun.sleep(frozenAtMs + FROZEN_MS - performance.now());
    // On a machine under load the last ones take longer; they would find the database answering again.
    const probed = await Promise.all(probes);
    const ready = await fetch(`${baseUrl}/readyz`);
    const healthy = await fetch(`${baseUrl}/healthz`);
    const thawedAtMs = performance.now();
    const elapsedMs = startStopwatch(gateway.pid, upstream.pid);
    await signalServer(dataDir, "SIGCONT");
    await Bun.sleep(LOAD_AFTER_MS);
    const waitedMs = performance.now() - thawedAtMs - elapsedMs();
    const sent = await settledLoad();
    expect([ready.status, healthy.status]).toEqual([503, 200]);
    expect(probed.map(({ errorCode }) => errorCode)).toEqual(
      Array(PROBES).fill("database_unavailable"),
    );
    expectRefusalsInTime(probed);
    expectRefusalsInTime(sent);
    const running = streamsAt(sent, frozenAtMs);
    expect(running.length).toBeGreaterThan(0);
    expect(running.filter(({ isWhole }) => !isWhole)).toEqual([]);
    expect(firstAnswerAfter(sent, thawedAtMs - PATIENCE_MS) - thawedAtMs).toBeLessThan(
      PATIENCE_MS + TOLERANCE_MS + waitedMs,
    );
  },
  TIMEOUT_MS,
);

test(
  "an idempotency key whose call failed for want of the database is free once that is back, and is charged once",
  async () => {
    const { network, database, stop } = await startBehindNetwork();
    const tag = "the same key";
    const first = send("slow-insistent", tag);
    await until("its provider is asked", async () => {
      const [row] = await look(
        database.url,
        (sql) => sql`SELECT 1 FROM idempotency_records WHERE idempotency_key = ${tag}`,
      );
      return row !== undefined;
    });
    network.breakDown();
    const failed = await first;
    expect(expectRefusalsInTime([failed])).toHaveLength(1);
    network.restore();
    await until("requests are admitted", async () => (await send("plain")).isWhole);
    const again = await Promise.race([send("slow-insistent", tag), Bun.sleep(PATIENCE_MS)]);
    expect(again).toMatchObject({ isWhole: true });
    await holdsEnded(baseUrl);
    expect(await auditOf(database.url, upstream, [again as Sent])).toEqual([]);
    await stop();
  },
  TIMEOUT_MS,
);

test(
  "a database that is gone for less than a second refuses no call of a model, by keys that were in use or not",
  async () => {
    const { network, database, stop } = await startBehindNetwork();
    const { management_key: managementKey } = firstKeys(dataDir);
    const created = await fetch(`${baseUrl}/v1/keys`, {
      method: "POST",
      headers: { authorization: `Bearer ${managementKey}`, "content-type": "application/json" },
      body: JSON.stringify({ name: "never used" }),
    });
    const { key: unused } = (await created.json()) as { key: string };
    await send("plain");
    network.breakDown();
    setTimeout(() => network.restore(), SHORT_OUTAGE_MS);
    const sent = await Promise.all([
      ...["plain", "short", "insistent"].map((kind) => send(kind)),
      ...["plain", "short", "insistent"].map((kind) => send(kind, crypto.randomUUID(), unused)),
    ]);
    expect(network.refusals).toBeGreaterThan(0);
    expect(sent.map(({ isWhole }) => isWhole)).toEqual(sent.map(() => true));
    await holdsEnded(baseUrl);
    expect(await auditOf(database.url, upstream, sent)).toEqual([]);
    await stop();
  },
  TIMEOUT_MS,
);
