import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { exitOf } from "../crash/gateway-process.ts";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { isSigned, LOCAL_DELIVERY, type Receiver, startReceiver } from "../webhooks/receiver.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 90_000;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("webhooks of several gateways", () => {
  let cluster: Cluster;
  let receiver: Receiver;
  const running: Instance[] = [];
  let sql: Database;
  beforeAll(async () => {
    cluster = await openCluster(redis!.url, {
      ...LOCAL_DELIVERY,
      GATEWAY_COMPLETION_SUCCESS_SAMPLE: "1",
    });
    for (let i = 0; i < 2; i++) running.push(await cluster.start());
    sql = connectDatabase({ url: cluster.databaseUrl }, { poolSize: 1, applicationName: "test" });
    receiver = startReceiver();
  }, TIMEOUT_MS);
  afterAll(async () => {
    await receiver?.stop();
    await sql?.end({ timeout: 1 });
    await cluster?.stop();
  });

  const post = async <Body>(instance: Instance, path: string, body: unknown, key: string) => {
    const response = await fetch(`${instance.baseUrl}${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect(response.ok).toBeTrue();
    return (await response.json()) as Body;
  };

  /** Which of the two that were started first acts for the webhook, in the order of their starts. */
  async function placeOfOwner(hookId: string): Promise<number> {
    const instances = await sql<{ id: string }[]>`SELECT id FROM instances ORDER BY started_at`;
    const [lease] = await sql`SELECT instance_id FROM actor_leases WHERE id = ${hookId}`;
    return instances.findIndex(({ id }) => id === lease!.instance_id);
  }

  test(
    "what any of them emits arrives in order, also when the one that delivered it is killed",
    async () => {
      const [first, second] = running as [Instance, Instance];
      const hook = await post<{ id: string; secret: string }>(
        first,
        "/v1/webhooks",
        { url: receiver.url, events: ["key.created", "completion.success"] },
        cluster.managementKey,
      );
      const names: string[] = [];
      const emit = async (instance: Instance) => {
        const name = `key ${names.length}`;
        names.push(name);
        await post(instance, "/v1/keys", { name }, cluster.managementKey);
      };
      const arrived = () =>
        receiver.received.flatMap(({ event }) =>
          event.type === "key.created" ? [event.data.key_name] : [],
        );
      for (let i = 0; i < 10; i++) await emit(i % 2 === 0 ? first : second);
      await until("ten events", () => new Set(arrived()).size === 10, TIMEOUT_MS);
      const dying = running[await placeOfOwner(hook.id)]!;
      running.splice(running.indexOf(dying), 1);
      dying.gateway.signal("SIGKILL");
      await exitOf(dying.gateway);
      for (let i = 0; i < 5; i++) await emit(running[0]!);
      await until("what came after it", () => new Set(arrived()).size === names.length, TIMEOUT_MS);
      expect([...new Set(arrived())]).toEqual(names);
      for (const one of receiver.received) expect(isSigned(one, hook.secret)).toBeTrue();
    },
    TIMEOUT_MS,
  );

  test(
    "a completion at one is reported though the webhook was made at another a moment ago",
    async () => {
      const [first, second] = [running[0]!, await cluster.start()];
      const complete = () =>
        post<{ id: string }>(
          second,
          "/v1/chat/completions",
          { model: "sandbox/chat", messages: [{ role: "user", content: "Hello" }] },
          cluster.secretKey,
        );
      await complete();
      const mine = startReceiver();
      const hook = { url: mine.url, events: ["completion.success"] };
      await post(first, "/v1/webhooks", hook, cluster.managementKey);
      // The news takes a second at most; each of these completions may be the first that is reported.
      await until(
        "one is reported",
        async () => {
          await complete();
          return mine.received.length > 0;
        },
        TIMEOUT_MS,
      );
      await mine.stop();
    },
    TIMEOUT_MS,
  );
});
