import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Redis } from "ioredis";
import { VirtualClock } from "../../src/lib/clock.ts";
import { RateScripts } from "../../src/platform/cluster/redis/rate-scripts.ts";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { busiestWindows, type Trouble } from "./admissions.ts";
import { VirtualCluster } from "./virtual-cluster.ts";

const WINDOW_MS = 60_000;
const INSTANCES = 3;
/** An instance counts as taking part for so long after it was last heard of. */
const PRESENT_MS = 4_500;
/** By how much admissions leave late that were reported to Redis. */
const LATE_MS = 1_000;
const RUNS = Number(process.env.GATEWAY_TEST_RATE_SCHEDULES ?? 30);

const server = await findTestRedis();

type Step =
  | {
      readonly kind: "take";
      readonly instance: number;
      readonly count: number;
      readonly gapMs: number;
    }
  | { readonly kind: "cut"; readonly instances: readonly number[] }
  | { readonly kind: "heal"; readonly instances: readonly number[] }
  | { readonly kind: "lose" }
  | { readonly kind: "late"; readonly instance: number; readonly commands: number }
  | { readonly kind: "clock"; readonly byMs: number };

const instance = fc.integer({ min: 0, max: INSTANCES - 1 });
/** Bursts, a pace at which instances attend in between, and pauses after which a window has nearly passed. */
const gapMs = fc.oneof(
  fc.constant(0),
  fc.integer({ min: 0, max: 3_000 }),
  fc.integer({ min: 0, max: 20_000 }),
  fc.integer({ min: WINDOW_MS - 3_000, max: WINDOW_MS }),
);
const someInstances = fc.uniqueArray(instance, { minLength: 1, maxLength: INSTANCES });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 24,
    arbitrary: fc.record({
      kind: fc.constant("take" as const),
      instance,
      count: fc.integer({ min: 1, max: 12 }),
      gapMs,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("cut" as const), instances: someInstances }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant("heal" as const), instances: someInstances }),
  },
  { weight: 2, arbitrary: fc.constant({ kind: "lose" as const }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("late" as const),
      instance,
      commands: fc.integer({ min: 1, max: 6 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("clock" as const),
      byMs: fc.constantFrom(-3_600_000, -30_000, 30_000, 3_600_000),
    }),
  },
);

describe.skipIf(server === undefined)("three instances on a virtual clock", () => {
  let redis: Redis;
  let opened = 0;
  beforeAll(() => {
    redis = new Redis(server!.url);
  });
  afterAll(() => redis.disconnect());

  async function withCluster<Result>(use: (cluster: VirtualCluster) => Promise<Result>) {
    const cluster = new VirtualCluster(redis, `${server!.keyPrefix}${opened++}:`);
    try {
      await cluster.start(INSTANCES);
      return await use(cluster);
    } finally {
      await cluster.clear();
    }
  }

  /** Carries a step out; a loss that came with it is added to the troubles. */
  async function play(cluster: VirtualCluster, one: Step, limit: number, troubles: Trouble[]) {
    const noteTrouble = () => {
      const fromMs = cluster.nowMs;
      troubles.push({ fromMs, untilMs: fromMs + PRESENT_MS });
    };
    if (one.kind === "take") {
      await cluster.advance(one.gapMs);
      for (let i = 0; i < one.count; i++) await cluster.take(one.instance, limit);
      return;
    }
    if (one.kind === "heal") {
      for (const i of one.instances) cluster.cut(i, false);
      cluster.handOutLate();
      return;
    }
    if (one.kind === "late") {
      // Its answers may be asked for long after.
      cluster.makeLate(one.instance, one.commands, noteTrouble);
      return;
    }
    if (one.kind === "cut") for (const i of one.instances) cluster.cut(i, true);
    else if (one.kind === "lose") await cluster.lose();
    else await cluster.setRedisClock(one.byMs);
    noteTrouble();
  }

  /** When everything works again: what is left is what was not used, and admissions leave late rather than early. */
  async function expectAllCountedOnce(cluster: VirtualCluster, limit: number): Promise<void> {
    for (let i = 0; i < INSTANCES; i++) cluster.cut(i, false);
    cluster.handOutLate();
    await cluster.advance(3_000);
    expect(cluster.isAllJoined).toBe(true);
    const used = (withinMs: number) =>
      cluster.admissions
        .filter(({ askedMs }) => askedMs > cluster.nowMs - withinMs)
        .reduce((sum, { amount }) => sum + amount!, 0);
    for (let i = 0; i < INSTANCES; i++) {
      const left = await cluster.instance(i).remaining("key", limit);
      expect(left).toBeLessThanOrEqual(Math.max(0, limit - used(WINDOW_MS)));
      expect(left).toBeGreaterThanOrEqual(Math.max(0, limit - used(WINDOW_MS + LATE_MS)));
    }
  }

  test(
    "whatever is cut, lost or set: windows without a loss hold at most the limit, those with one less than twice",
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 3, max: 24 }),
          fc.array(step, { minLength: 5, maxLength: 60 }),
          async (limit, steps) =>
            withCluster(async (cluster) => {
              const troubles: Trouble[] = [];
              for (const one of steps) await play(cluster, one, limit, troubles);
              const busiest = busiestWindows(cluster.admissions, WINDOW_MS, troubles);
              expect(busiest.calm).toBeLessThanOrEqual(limit);
              // A loss on top of a loss adds to it.
              if (troubles.length <= 1) expect(busiest.troubled).toBeLessThan(2 * limit);
            }),
        ),
        { numRuns: RUNS },
      );
    },
    60_000 + RUNS * 1_000,
  );

  test(
    "the same holds of amounts that are recounted when their calls end, on whichever side of a loss",
    async () => {
      const limit = 240;
      const bounds = fc.record({
        bound: fc.integer({ min: 1, max: 30 }),
        usedShare: fc.double({ min: 0, max: 1, noNaN: true }),
        lastsSteps: fc.integer({ min: 0, max: 8 }),
      });
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(step, bounds), { minLength: 5, maxLength: 40 }),
          async (steps) =>
            withCluster(async (cluster) => {
              const troubles: Trouble[] = [];
              const running: { readonly endsAt: number; end(): void }[] = [];
              for (const [at, [one, { bound, usedShare, lastsSteps }]] of steps.entries()) {
                for (const { endsAt, end } of running) if (endsAt === at) end();
                if (one.kind !== "take") {
                  await play(cluster, one, limit, troubles);
                  continue;
                }
                await cluster.advance(one.gapMs);
                for (let i = 0; i < one.count; i++) {
                  const taken = await cluster.takeAmount(one.instance, limit, bound);
                  const end = () => taken?.recount(Math.floor(bound * usedShare));
                  running.push({ endsAt: at + 1 + lastsSteps, end });
                }
              }
              const busiest = busiestWindows(cluster.admissions, WINDOW_MS, troubles);
              expect(busiest.calm).toBeLessThanOrEqual(limit);
              if (troubles.length <= 1) expect(busiest.troubled).toBeLessThan(2 * limit);
              for (const { end } of running) end();
              await expectAllCountedOnce(cluster, limit);
            }),
        ),
        { numRuns: Math.ceil(RUNS / 2) },
      );
    },
    60_000 + RUNS * 1_000,
  );

  test("an instance that Redis hears of late takes no part by that", async () => {
    const keyPrefix = `${server!.keyPrefix}${opened++}:`;
    const clockKey = `${keyPrefix}clock`;
    const instanceId = "ins_0";
    const clock = new VirtualClock();
    const options = { redis, clock, instanceId, windowMs: WINDOW_MS };
    const scripts = new RateScripts({ ...options, keyPrefix, clockKey });
    await redis.set(clockKey, 1_000_000);
    const generation = await scripts.attend(undefined, undefined);
    await scripts.attend(generation, undefined);
    const present = `${keyPrefix}rate:${generation.split(":")[1]}:present`;
    expect(await redis.zscore(present, instanceId)).toBe("1000000");
    // As one that was sent before Redis hung.
    await redis.set(clockKey, 1_000_501);
    const attending = scripts.attend(generation, undefined);
    clock.advance(501);
    await expect(attending).rejects.toThrow("did not answer in time");
    expect(await redis.zscore(present, instanceId)).toBe("1000000");
    await redis.del(present, clockKey, `${keyPrefix}rate`);
  });

  test("of many takes at once through all of them exactly as many are admitted as the limit says", async () => {
    await withCluster(async (cluster) => {
      const takes = Array.from({ length: 900 }, (_, i) => cluster.take(i % INSTANCES, 200));
      const admitted = (await Promise.all(takes)).filter(Boolean);
      expect(admitted).toHaveLength(200);
    });
  });

  test("what was admitted on many keys without Redis is told, each to its own window", async () => {
    await withCluster(async (cluster) => {
      const keys = Array.from({ length: 300 }, (_, i) => `key ${i}`);
      cluster.cut(0, true);
      const apart = cluster.instance(0);
      for (const key of keys) {
        expect((await apart.take(key, 2 * INSTANCES)).isAdmitted).toBe(true);
        expect((await apart.take(key, 2 * INSTANCES)).isAdmitted).toBe(true);
      }
      cluster.cut(0, false);
      await cluster.advance(1_000);
      expect(cluster.isAllJoined).toBe(true);
      for (const [i, key] of keys.entries()) {
        const windows = cluster.instance(i % INSTANCES);
        expect((await windows.take(key, 2)).isAdmitted).toBe(false);
        expect(await windows.take(key, 3)).toMatchObject({ isAdmitted: true, remaining: 0 });
      }
    });
  });

  test("a window that Redis evicted is noticed by who was admitted into it, and all tell what they admitted", async () => {
    await withCluster(async (cluster) => {
      for (let i = 0; i < 9; i++) expect(await cluster.take(i % INSTANCES, 10)).toBe(true);
      await cluster.advance(10_000);
      expect(await cluster.lose("rate:*:of:*")).toBe(1);
      // The first one is admitted into the window that is not there.
      expect(await cluster.take(0, 10)).toBe(true);
      for (let i = 0; i < INSTANCES; i++) expect(await cluster.take(i, 10)).toBe(false);
      await cluster.advance(2_000);
      expect(cluster.isAllJoined).toBe(true);
      for (let i = 0; i < INSTANCES; i++) expect(await cluster.take(i, 10)).toBe(false);
      expect(await cluster.take(0, 11)).toBe(true);
      expect(await cluster.take(1, 11)).toBe(false);
    });
  });

  test("one that stops in order leaves the whole limit to the others, who take it for alive yet", async () => {
    await withCluster(async (cluster) => {
      for (let i = 0; i < 25; i++) expect(await cluster.take(i % INSTANCES, 30)).toBe(true);
      await cluster.stop(2);
      for (let i = 0; i < 5; i++) expect(await cluster.take(i % 2, 30)).toBe(true);
      expect(await cluster.take(0, 30)).toBe(false);
    });
  });

  test("one that has joined before the others know of it does not stand for one that is cut off", async () => {
    await withCluster(async (cluster) => {
      cluster.cut(2, true);
      await cluster.advance(5_000);
      await cluster.add(false, false);
      const admitted = { joined: 0, cutOff: 0 };
      for (let i = 0; i < 40; i++) {
        if (await cluster.take(i % 2, 30)) admitted.joined++;
        if (await cluster.take(2, 30)) admitted.cutOff++;
      }
      expect(admitted).toEqual({ joined: 20, cutOff: 10 });
    });
  });

  test("an admission whose answer comes when the counters began anew is told to the new ones", async () => {
    await withCluster(async (cluster) => {
      const letThrough = cluster.delay(0);
      const late = cluster.take(0, 1);
      await until("Redis to have counted it", async () => (await cluster.count("rate:*:of:*")) > 0);
      await cluster.lose();
      await cluster.advance(1_000);
      expect(cluster.isAllJoined).toBe(true);
      letThrough();
      expect(await late).toBe(true);
      await cluster.advance(500);
      expect(await cluster.take(1, 1)).toBe(false);
      expect(await cluster.take(1, 2)).toBe(true);
    });
  });

  test("a take whose answer comes late is decided apart, and counts once", async () => {
    await withCluster(async (cluster) => {
      expect(await cluster.take(0, 30)).toBe(true);
      cluster.makeLate(0, 1);
      expect(await cluster.take(0, 30)).toBe(true);
      expect(cluster.instance(0).isJoined).toBe(false);
      expect(cluster.instance(0).admittedWithoutRedis).toBe(1);
      await cluster.advance(1_000);
      expect(cluster.isAllJoined).toBe(true);
      expect(await cluster.instance(1).remaining("key", 30)).toBe(27);
      cluster.handOutLate();
      await cluster.advance(500);
      expect(await cluster.instance(1).remaining("key", 30)).toBe(28);
    });
  });

  test("what is given back counts once, whether its answer comes late or it was reported meanwhile", async () => {
    await withCluster(async (cluster) => {
      const left = () => cluster.instance(1).remaining("key", 300);
      const first = await cluster.takeAmount(0, 300, 50);
      cluster.makeLate(0, 1);
      first!.recount(20);
      await until("it to have arrived", async () => (await left()) === 280);
      cluster.cut(0, true);
      const apart = await cluster.takeAmount(0, 300, 40);
      cluster.cut(0, false);
      await cluster.advance(1_000);
      expect(cluster.isAllJoined).toBe(true);
      expect(await left()).toBe(240);
      apart!.recount(10);
      await cluster.lose();
      await cluster.advance(1_000);
      expect(await left()).toBe(270);
      apart!.recount(5);
      first!.recount(0);
      await cluster.advance(500);
      expect(await left()).toBe(295);
    });
  });

  test("an instance that begins without Redis admits nothing for a window, as it knows of nothing", async () => {
    await withCluster(async (cluster) => {
      const late = await cluster.add(true);
      expect(cluster.instance(late).isJoined).toBe(false);
      const refusal = await cluster.instance(late).take("key", 30);
      expect(refusal).toMatchObject({ isAdmitted: false, limit: 30, remaining: 0 });
      await cluster.advance(refusal.retryAfterMs - 1);
      expect(await cluster.take(late, 30)).toBe(false);
      await cluster.advance(1);
      expect(await cluster.take(late, 30)).toBe(true);
      cluster.cut(late, false);
      await cluster.advance(1_000);
      expect(cluster.isAllJoined).toBe(true);
    });
  });

  test("without Redis each instance has its share of a limit, and one of a limit that is too small to share", async () => {
    await withCluster(async (cluster) => {
      for (let i = 0; i < INSTANCES; i++) cluster.cut(i, true);
      for (const [limit, share] of [
        [10, 3],
        [2, 1],
      ] as const) {
        for (let i = 0; i < INSTANCES; i++) {
          const windows = cluster.instance(i);
          const key = `limit ${limit}`;
          for (let k = 1; k <= share; k++) {
            const decision = await windows.take(key, limit);
            expect(decision).toMatchObject({ isAdmitted: true, limit, remaining: share - k });
          }
          const { isAdmitted, retryAfterMs } = await windows.take(key, limit);
          expect(isAdmitted).toBe(false);
          expect(retryAfterMs).toBeWithin(WINDOW_MS, WINDOW_MS + 101);
        }
      }
    });
  });
});
