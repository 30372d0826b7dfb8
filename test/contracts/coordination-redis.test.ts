import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Redis } from "ioredis";
import { steadyClock } from "../../src/lib/clock.ts";
import { createCoordination } from "../../src/platform/cluster/create-coordination.ts";
import type { Coordination, Wakes } from "../../src/platform/cluster/interface.ts";
import { findRedisBinary } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";
import { describeWakes } from "./wakes.ts";

type Shared = Coordination & { readonly wakes: Wakes };

const binary = await findRedisBinary();

describe.skipIf(binary === null)("through Redis", () => {
  let server: RedisServer;
  let instances: Shared[];
  const errors: unknown[] = [];
  beforeAll(async () => {
    server = await RedisServer.start(binary!);
    const creating = [0, 1].map((i) =>
      createCoordination({
        redisUrl: server.url,
        instanceId: `ins_${i}`,
        clock: steadyClock,
        liveInstances: () => ["ins_0", "ins_1"],
        onRedisLost: () => {},
        onRedisBack: () => {},
        onError: (error) => errors.push(error),
      }),
    );
    instances = (await Promise.all(creating)) as Shared[];
    await Promise.all(instances.map((one) => one.start()));
  });
  afterAll(async () => {
    await Promise.all(instances.map((one) => one.close()));
    await server.kill();
  });

  test("without the database that the URL names is no Redis: another one's is not taken in its place", async () => {
    const reasons: string[] = [];
    const lost = await createCoordination({
      redisUrl: `${server.url}/99999`,
      instanceId: "ins_lost",
      clock: steadyClock,
      liveInstances: () => ["ins_lost"],
      keyPrefix: "elsewhere:",
      onRedisLost: (reason) => reasons.push((reason as Error).message),
      onRedisBack: () => reasons.push("back"),
      onError: () => {},
    });
    await lost.start();
    expect(lost.redis?.isUp).toBeFalse();
    await lost.close();
    expect(reasons).toEqual(["ERR DB index is out of range"]);
    const client = new Redis(server.url);
    expect(await client.keys("elsewhere:*")).toEqual([]);
    client.disconnect();
  });

  describeWakes(() => ({ instances: instances.map(({ wakes }) => wakes), errors }));

  test("more wake-ups than fit into one turn are lost, and later ones are heard", async () => {
    const { wakes } = instances[0]!;
    let heard = 0;
    wakes.onWake("bounded", () => heard++);
    for (let i = 0; i < 25_000; i++) wakes.wake("bounded", `id ${i}`);
    await Promise.resolve();
    expect(heard).toBe(10_000);
    wakes.wake("bounded", "later");
    await Promise.resolve();
    expect(heard).toBe(10_001);
  });

  test("what somebody else sends to the channel of wake-ups is passed over", async () => {
    const heard: string[] = [];
    instances[0]!.wakes.onWake("odd", (id) => heard.push(id));
    const other = new Redis(server.url);
    for (const message of ["", "no json", "{}", "[]", '["a"]', '["a","odd"]', '["a","odd",1]']) {
      await other.publish("{gateway}:wakes", message);
    }
    await other.publish("{gateway}:wakes", '["a","odd","right"]');
    other.disconnect();
    await until("the right one", () => heard.length > 0);
    expect(heard).toEqual(["right"]);
    expect(errors.filter((error) => error instanceof SyntaxError)).toEqual([]);
  });

  test("many wake-ups of one turn reach the other instance, all of them", async () => {
    const heard = new Set<string>();
    instances[1]!.wakes.onWake("many", (id) => heard.add(id));
    for (let i = 0; i < 3_500; i++) instances[0]!.wakes.wake("many", `id ${i}`);
    await until("all of them", () => heard.size === 3_500);
  });

  test("without Redis an instance wakes itself; with it all is well again", async () => {
    const [one, other] = instances as [Shared, Shared];
    const heard: string[][] = [[], []];
    one.wakes.onWake("late", (id) => heard[0]!.push(id));
    other.wakes.onWake("late", (id) => heard[1]!.push(id));
    await server.kill();
    one.wakes.wake("late", "alone");
    await until("its own wake-up", () => heard[0]!.includes("alone"));
    await server.start();
    await until("both to be back", () => instances.every(({ redis }) => redis!.isUp), 10_000);
    await until("the other to hear again", () => {
      one.wakes.wake("late", "together");
      return heard[1]!.includes("together");
    });
    expect(heard[1]).not.toContain("alone");
  });
});
