import { afterAll, describe, expect, test } from "bun:test";
import { steadyClock } from "../../src/lib/clock.ts";
import { createCoordination } from "../../src/platform/cluster/create-coordination.ts";
import type { Coordination } from "../../src/platform/cluster/interface.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { findRedisBinary } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { type Admission, ask, busiestWindows, type Trouble } from "./admissions.ts";

/** A gateway has windows of 60 s; GATEWAY_TEST_RATE_WINDOW_SECONDS=60 takes them. */
const WINDOW_MS = Number(process.env.GATEWAY_TEST_RATE_WINDOW_SECONDS ?? 3) * 1_000;
const WINDOWS = 3;
/** 600 in a minute, and 5,000 requests in three. */
const LIMIT = WINDOW_MS / 100;
const REQUESTS = Math.round((5_000 * WINDOW_MS) / 60_000);
/** Of half the limit each. */
const CLUMPS = Math.floor((2 * REQUESTS) / LIMIT);
const INSTANCES = 3;
const TIMEOUT_MS = WINDOWS * WINDOW_MS + 30_000;

const binary = await findRedisBinary();

interface Cluster {
  readonly server: RedisServer;
  readonly proxy: CuttingProxy;
  readonly coordinations: readonly Coordination[];
  /** Each loss that an instance told of. */
  readonly lost: { readonly instance: number; readonly atMs: number }[];
  readonly back: number[];
}

const cleanups: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

const START_TRIES = 5;

/**
 * Starts that run at once hold each other up, and a Redis that answers late counts as lost: of a machine that is so
 * busy the test says nothing, so it starts again.
 */
let earlierStart: Promise<unknown> = Promise.resolve();
function startCluster(): Promise<Cluster> {
  const start = earlierStart.then(async () => {
    for (let tries = 1; ; tries++) {
      const cluster = await startClusterNow();
      if (cluster.coordinations.every(({ redis }) => redis!.isUp)) return cluster;
      if (tries === START_TRIES) throw new Error("an instance never reached its Redis in time");
    }
  });
  earlierStart = start.catch(() => {});
  return start;
}

/** Three instances; the last reaches Redis through a network that can be cut. */
async function startClusterNow(): Promise<Cluster> {
  const server = await RedisServer.start(binary!);
  const proxy = await startCuttingProxy(server.url);
  const lost: { instance: number; atMs: number }[] = [];
  const back: number[] = [];
  const starting = Array.from({ length: INSTANCES }, (_, i) =>
    createCoordination({
      redisUrl: i === INSTANCES - 1 ? proxy.url : server.url,
      instanceId: `ins_${i}`,
      clock: steadyClock,
      liveInstances: () => Array.from({ length: INSTANCES }, (_, n) => `ins_${n}`),
      onRedisLost: () => lost.push({ instance: i, atMs: steadyClock.nowMs() }),
      onRedisBack: () => back.push(i),
      onError: (error) => {
        throw error;
      },
      windowMs: WINDOW_MS,
    }),
  );
  const coordinations = await Promise.all(starting);
  cleanups.push(async () => {
    await Promise.all(coordinations.map((one) => one.close()));
    await proxy.stop();
    await server.kill();
  });
  await Promise.all(coordinations.map((one) => one.start()));
  return { server, proxy, coordinations, lost, back };
}

interface Load {
  readonly spread: Admission[];
  readonly clumped: Admission[];
}

/**
 * One key asked at times spread at random, another in clumps that all come to one instance: at random too,
 * but one in each of as many equal parts of the time, so that no window goes without.
 */
async function load({ coordinations }: Cluster): Promise<Load> {
  const spread: Admission[] = [];
  const clumped: Admission[] = [];
  const lengthMs = WINDOWS * WINDOW_MS;
  const any = () => Math.floor(Math.random() * INSTANCES);
  const atRandom = async () => {
    const instance = any();
    await Bun.sleep(Math.random() * lengthMs);
    await ask(coordinations, instance, "spread", LIMIT, spread);
  };
  const clump = async (_: unknown, part: number) => {
    const instance = any();
    await Bun.sleep(((part + Math.random()) / CLUMPS) * lengthMs);
    await Promise.all(
      Array.from({ length: LIMIT / 2 }, () =>
        ask(coordinations, instance, "clumped", LIMIT, clumped),
      ),
    );
  };
  await Promise.all([
    ...Array.from({ length: REQUESTS }, atRandom),
    ...Array.from({ length: CLUMPS }, clump),
  ]);
  return { spread, clumped };
}

/** What a test does to Redis, or to the way there. */
interface Loss {
  readonly afterMs?: number;
  readonly lengthMs?: number;
  readonly begin: (cluster: Cluster) => Promise<unknown> | unknown;
  readonly end: (cluster: Cluster) => Promise<unknown> | unknown;
  /** Until those know of it that do not lose Redis themselves. */
  readonly noticeMs?: number;
}

/** When that was. */
interface Outage extends Trouble {
  readonly endMs: number;
}

async function outage(
  cluster: Cluster,
  { afterMs = WINDOW_MS, lengthMs = WINDOW_MS, begin, end, noticeMs = 0 }: Loss,
): Promise<Outage> {
  await Bun.sleep(afterMs);
  const fromMs = steadyClock.nowMs();
  await begin(cluster);
  const knownMs = steadyClock.nowMs() + noticeMs;
  await Bun.sleep(lengthMs);
  await end(cluster);
  const endMs = steadyClock.nowMs();
  return { fromMs, untilMs: Math.max(knownMs, ...noticedMs(cluster, fromMs, endMs)), endMs };
}

/** When each instance that lost Redis then first knew: what it had granted before may still have come in. */
function noticedMs({ lost }: Cluster, fromMs: number, endMs: number): number[] {
  const first = new Map<number, number>();
  for (const { instance, atMs } of lost) {
    if (atMs >= fromMs && atMs <= endMs && !first.has(instance)) first.set(instance, atMs);
  }
  return [...first.values()];
}

/** Those that a busy machine causes: an instance that had no answer in time has lost Redis, too. */
function otherLosses({ lost }: Cluster, outages: readonly Outage[]): Trouble[] {
  return lost
    .filter(({ atMs }) => !outages.some(({ fromMs, endMs }) => atMs >= fromMs && atMs <= endMs))
    .map(({ atMs }) => ({ fromMs: atMs - 500, untilMs: atMs + 500 + WINDOW_MS / 15 }));
}

function expectBounds(
  name: string,
  cluster: Cluster,
  admitted: Load,
  outages: readonly Outage[],
): void {
  const others = otherLosses(cluster, outages);
  for (const [key, admissions] of Object.entries(admitted)) {
    const busiest = busiestWindows(admissions, WINDOW_MS, [...outages, ...others]);
    console.log(
      `${name}, ${key}: ${admissions.length} admitted; limit ${LIMIT}, busiest window ${busiest.calm}, with a loss in it ${busiest.troubled}${others.length > 0 ? `; ${others.length} losses by a busy machine` : ""}`,
    );
    expect(busiest.calm).toBeLessThanOrEqual(LIMIT);
    if (others.length === 0) expect(busiest.troubled).toBeLessThan(2 * LIMIT);
    // It goes on admitting: at least half of what fits into three windows.
    expect(admissions.length).toBeGreaterThan((WINDOWS * LIMIT) / 2);
  }
}

const instancesOf = (losses: Cluster["lost"]) =>
  [...new Set(losses.map(({ instance }) => instance))].toSorted();

const allBack = ({ coordinations }: Cluster) =>
  until("all instances to be back", () => coordinations.every(({ redis }) => redis!.isUp), 10_000);

/** A cluster that has lost Redis under load, kept to its bounds, and come back. */
async function loseUnderLoad(name: string, loss: Loss): Promise<Cluster> {
  const cluster = await startCluster();
  const [admitted, trouble] = await Promise.all([load(cluster), outage(cluster, loss)]);
  expectBounds(name, cluster, admitted, [trouble]);
  await allBack(cluster);
  return cluster;
}

describe.skipIf(binary === null)("three instances", () => {
  test.concurrent(
    "together admit at most the limit in any window",
    async () => {
      const cluster = await startCluster();
      const admitted = await load(cluster);
      expectBounds("Redis there", cluster, admitted, []);
      const full = WINDOWS * LIMIT;
      expect(admitted.spread.length).toBeGreaterThan(0.8 * full);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "admit less than twice the limit where Redis is lost, and at most the limit before, afterwards, and when it is back",
    async () => {
      const { lost, back } = await loseUnderLoad("Redis gone for a window", {
        begin: ({ server }) => server.kill(),
        end: ({ server }) => server.start(),
      });
      expect(instancesOf(lost)).toEqual([0, 1, 2]);
      expect([...new Set(back)].toSorted()).toEqual([0, 1, 2]);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "tell a Redis that was killed and started again empty what they admitted before",
    async () => {
      const { lost } = await loseUnderLoad("Redis started again empty", {
        afterMs: 1.5 * WINDOW_MS,
        lengthMs: 0,
        begin: ({ server }) => server.kill(),
        end: ({ server }) => server.start(),
      });
      expect(instancesOf(lost)).toEqual([0, 1, 2]);
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "keep to it where Redis hangs for a window and then goes on with what it had",
    async () => {
      await loseUnderLoad("Redis hung for a window", {
        begin: ({ server }) => server.pause(),
        end: ({ server }) => server.resume(),
      });
    },
    TIMEOUT_MS,
  );

  test.concurrent(
    "keep to it where one of them cannot reach Redis and the others can",
    async () => {
      const { lost, back } = await loseUnderLoad("one cut off for a window", {
        begin: ({ proxy }) => proxy.breakDown(),
        end: ({ proxy }) => proxy.restore(),
        // The others know that one is missing within a fifteenth of a window.
        noticeMs: WINDOW_MS / 15,
      });
      expect(instancesOf(lost)).toContain(2);
      expect(back).toContain(2);
    },
    TIMEOUT_MS,
  );
});
