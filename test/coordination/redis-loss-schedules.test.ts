import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Redis } from "ioredis";
import { findTestRedis } from "../support/redis.ts";
import { busiestWindows, type Trouble } from "./admissions.ts";
import { VirtualCluster } from "./virtual-cluster.ts";

const WINDOW_MS = 60_000;
const INSTANCES = 3;
/** An instance counts as taking part for so long after it was last heard of. */
const PRESENT_MS = 4_500;
const RUNS = Number(process.env.GATEWAY_TEST_RATE_SCHEDULES ?? 60);

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
    const fromMs = cluster.nowMs;
    if (one.kind === "take") {
      await cluster.advance(one.gapMs);
      for (let i = 0; i < one.count; i++) await cluster.take(one.instance, limit);
      return;
    }
    if (one.kind === "heal") {
      for (const i of one.instances) cluster.cut(i, false);
      return;
    }
    if (one.kind === "cut") for (const i of one.instances) cluster.cut(i, true);
    else if (one.kind === "lose") await cluster.lose();
    else await cluster.setRedisClock(one.byMs);
    troubles.push({ fromMs, untilMs: fromMs + PRESENT_MS });
  }

  test("whatever is cut, lost or set: windows without a loss hold at most the limit, those with one less than twice", async () => {
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
  }, 120_000);
});
