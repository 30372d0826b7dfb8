import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 120_000;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("the response cache of several instances", () => {
  let cluster: Cluster;
  let sql: Database;
  let instances: Instance[];
  beforeAll(async () => {
    cluster = await openCluster(redis!.url);
    sql = connectDatabase({ url: cluster.databaseUrl }, { poolSize: 2, applicationName: "test" });
    instances = [await cluster.start(), await cluster.start()];
  }, TIMEOUT_MS);
  afterAll(async () => {
    await sql?.end();
    await cluster?.stop();
  });

  async function ask(at: number, content: string, model = "sandbox/chat") {
    const response = await fetch(`${instances[at]!.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${cluster.secretKey}`,
        "content-type": "application/json",
        "x-gateway-cache": "on",
        "x-gateway-cache-single-flight": "on",
      },
      body: JSON.stringify({ model, messages: [{ role: "user", content }], max_tokens: 40 }),
    });
    const text = await response.text();
    expect(response.status, text).toBe(200);
    return response.headers.get("x-gateway-cache");
  }

  const purge = (at: number) =>
    fetch(`${instances[at]!.baseUrl}/v1/cache`, {
      method: "DELETE",
      headers: { authorization: `Bearer ${cluster.managementKey}` },
    });

  async function charged(model: string): Promise<{ calls: number; paid: number }> {
    const [row] = await sql<{ calls: number; paid: number }[]>`
      SELECT count(*)::int AS calls, count(*) FILTER (WHERE amount_nano <> 0)::int AS paid
      FROM transactions WHERE model = ${model} AND status = 200`;
    return row!;
  }

  test(
    "equal requests at both are one call and the bill of one, and both know of a purge at once",
    async () => {
      const outcomes = await Promise.all(
        Array.from({ length: 40 }, (_, n) => ask(n % 2, "count to 12", "sandbox/slow")),
      );
      expect(outcomes.filter((outcome) => outcome === "miss").length).toBe(1);
      expect(await charged("sandbox/slow")).toEqual({ calls: 40, paid: 1 });
      expect(await (await purge(0)).json()).toEqual({ purged: 1 });
      expect(await ask(1, "count to 12", "sandbox/slow")).toBe("miss");
    },
    TIMEOUT_MS,
  );

  test(
    "what an instance kept that was killed is given by the others, and who waits for it goes on",
    async () => {
      instances.push(await cluster.start());
      expect(await ask(2, "kept before")).toBe("miss");
      const lost = ask(2, "count to 39", "sandbox/slow").catch(() => "lost");
      await until("it runs", async () => {
        const [row] = await sql`SELECT count(*)::int AS flights FROM answer_flights`;
        return row!.flights === 1;
      });
      const waiting = [
        ask(0, "count to 39", "sandbox/slow"),
        ask(1, "count to 39", "sandbox/slow"),
      ];
      instances[2]!.gateway.signal("SIGKILL");
      expect(await lost).toBe("lost");
      expect((await Promise.all(waiting)).sort()).toEqual(["hit", "miss"]);
      expect(await ask(0, "kept before")).toBe("hit");
      await until(
        "nothing is held",
        async () => {
          const [row] = await sql`
          SELECT (SELECT count(*) FROM attempts) + (SELECT count(*) FROM holds) AS held`;
          return Number(row!.held) === 0;
        },
        60_000,
      );
      const [books] = await sql`
        SELECT a.credit_nano - a.posted_nano = sum(t.amount_nano) AS is_sum
        FROM accounts a JOIN transactions t USING (organization_id) WHERE a.kind = 'org' GROUP BY a.id`;
      expect(books!.is_sum).toBeTrue();
      const [cache] = await sql`
        SELECT c.entries = count(a.key_hash) AS is_counted, c.bytes = sum(a.bytes) AS is_summed
        FROM answer_caches c JOIN cached_answers a USING (organization_id)
        GROUP BY c.organization_id`;
      expect(cache).toEqual({ is_counted: true, is_summed: true });
    },
    TIMEOUT_MS,
  );
});
