import { afterEach, describe, expect, test } from "bun:test";
import type { RedisSlots } from "../../src/platform/cluster/redis/parallel-slots.ts";
import { describeParallelSlots } from "../contracts/parallel-slots.ts";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { SlotCluster } from "./slot-cluster.ts";

const server = await findTestRedis();
const LONG_LEASE_MS = 60_000;

describe.skipIf(server === undefined)("places of calls in Redis", () => {
  const clusters: SlotCluster[] = [];
  const open = (leaseMs = LONG_LEASE_MS) => {
    const cluster = new SlotCluster(server!.url, server!.keyPrefix, leaseMs);
    clusters.push(cluster);
    return cluster;
  };
  afterEach(async () => {
    await Promise.all(clusters.splice(0).map((cluster) => cluster.close()));
  });

  describeParallelSlots(async () => (await open().add()).slots);

  const four = [{ id: "four", max: 4 }];
  const take = async (slots: RedisSlots, times: number) => {
    const taken = await Promise.all(Array.from({ length: times }, () => slots.take(four)));
    return taken.filter(Boolean).length;
  };
  const release = (slots: RedisSlots, times: number) => {
    for (let i = 0; i < times; i++) slots.release(four);
  };

  test("of three instances that take and give back at random are never more than the limit", async () => {
    const cluster = open();
    const instances = [await cluster.add(), await cluster.add(), await cluster.add()];
    let running = 0;
    let most = 0;
    let served = 0;
    const client = async (at: number) => {
      const { slots, script } = instances[at % 3]!;
      for (let i = 0; i < 40; i++) {
        if (Math.random() < 0.03) script.lostAnswers++;
        if (!(await slots.take(four))) {
          await Bun.sleep(Math.random() * 4);
          continue;
        }
        most = Math.max(most, ++running);
        served++;
        await Bun.sleep(Math.random() * 4);
        running--;
        slots.release(four);
      }
    };
    await Promise.all(Array.from({ length: 24 }, (_, at) => client(at)));
    expect(most).toBe(4);
    expect(served).toBeGreaterThan(40);
    const free = () => take(instances[0]!.slots, 4);
    await until("all places to be free", async () => {
      const taken = await free();
      release(instances[0]!.slots, taken);
      return taken === 4;
    });
  });

  test("of an instance that dies are free when its lease has ended", async () => {
    const cluster = open(400);
    const dying = await cluster.add();
    const other = await cluster.add();
    expect(await take(dying.slots, 3)).toBe(3);
    expect(await take(other.slots, 4)).toBe(1);
    dying.freeze();
    cluster.live.delete(dying.id);
    await until("its places", async () => (await take(other.slots, 1)) === 1);
    expect(await take(other.slots, 4)).toBe(2);
  });

  test("of an instance that wakes after its lease count again with its next exchange", async () => {
    const cluster = open(400);
    const paused = await cluster.add();
    const other = await cluster.add();
    expect(await take(paused.slots, 4)).toBe(4);
    paused.freeze();
    cluster.live.delete(paused.id);
    await until("its places", async () => (await take(other.slots, 1)) === 1);
    cluster.live.add(paused.id);
    expect(await take(paused.slots, 1)).toBe(0);
    release(paused.slots, 2);
    expect(await take(paused.slots, 2)).toBe(1);
    expect(await take(other.slots, 1)).toBe(0);
  });

  test("are each instance's own share while Redis is lost, and all count once it is back", async () => {
    const cluster = open();
    const [one, other] = [await cluster.add(), await cluster.add()];
    expect(await take(one.slots, 3)).toBe(3);
    for (const { script } of [one, other]) script.isCut = true;
    expect(await take(one.slots, 2)).toBe(0);
    expect(await take(other.slots, 4)).toBe(2);
    for (const { script } of [one, other]) script.isCut = false;
    for (const { renew } of [one, other]) renew();
    expect(await take(other.slots, 1)).toBe(0);
    release(one.slots, 2);
    await until("a place", async () => (await take(other.slots, 1)) === 1);
    expect(await take(one.slots, 1)).toBe(0);
  });

  test("of an instance that alone has lost Redis are left to it", async () => {
    const cluster = open();
    const [one, apart] = [await cluster.add(), await cluster.add()];
    apart.script.isCut = true;
    expect(await take(apart.slots, 3)).toBe(2);
    // What Redis knows of it, its lease, has not ended yet.
    await cluster.lose();
    expect(await take(one.slots, 4)).toBe(2);
  });

  test("that Redis has lost are reported again, and never granted twice", async () => {
    const cluster = open();
    const [one, other] = [await cluster.add(), await cluster.add()];
    expect(await take(one.slots, 2)).toBe(2);
    expect(await take(other.slots, 2)).toBe(2);
    await cluster.lose();
    expect(await take(one.slots, 2)).toBe(0);
    expect(await take(other.slots, 2)).toBe(0);
    release(other.slots, 1);
    expect(await take(one.slots, 2)).toBe(1);
  });

  test("of a limit below the number of instances are one for each while Redis is lost", async () => {
    const cluster = open();
    const instances = [await cluster.add(), await cluster.add(), await cluster.add()];
    const one = [{ id: "one", max: 1 }];
    for (const { script } of instances) script.isCut = true;
    for (const { slots } of instances) {
      expect(await slots.take(one)).toBeTrue();
      expect(await slots.take(one)).toBeFalse();
    }
  });
});
