import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 120_000;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("requests of two instances", () => {
  let cluster: Cluster;
  let instances: Instance[];
  beforeAll(async () => {
    cluster = await openCluster(redis!.url);
    instances = [await cluster.start(), await cluster.start()];
  }, TIMEOUT_MS);
  afterAll(() => cluster?.stop());

  async function send(at: number, model: string): Promise<string> {
    const response = await fetch(`${instances[at]!.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${cluster.secretKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({ model, messages: [{ role: "user", content: "x" }], max_tokens: 4 }),
    });
    await response.text();
    return response.headers.get("x-gateway-request-id")!;
  }

  /** The ids of all pages. */
  async function listed(at: number, query = ""): Promise<string[]> {
    const ids: string[] = [];
    let after = "";
    for (;;) {
      const path = `/v1/requests?limit=200${query}${after}`;
      const response = await fetch(instances[at]!.baseUrl + path, {
        headers: { authorization: `Bearer ${cluster.managementKey}` },
      });
      expect(response.status).toBe(200);
      const page = (await response.json()) as {
        data: { id: string }[];
        last_id: string;
        has_more: boolean;
      };
      ids.push(...page.data.map(({ id }) => id));
      if (!page.has_more) return ids;
      after = `&after=${page.last_id}`;
    }
  }

  test(
    "what either has refused or charged, both list once, in one order",
    async () => {
      const sent: string[] = [];
      for (let n = 0; n < 24; n++) {
        sent.unshift(await send(n % 2, n % 3 === 0 ? "sandbox/chat" : "none"));
      }
      await until("all are listed", async () => (await listed(0)).length === sent.length);
      const seen = await listed(0);
      expect([...seen].sort()).toEqual([...sent].sort());
      expect(await listed(1)).toEqual(seen);
    },
    TIMEOUT_MS,
  );

  test(
    "kill -9 loses the last moment of failures at most",
    async () => {
      const batches: string[][] = [];
      for (let round = 0; round < 3; round++) {
        const batch: string[] = [];
        for (let n = 0; n < 10; n++) batch.push(await send(1, "none"));
        batches.push(batch);
        // What came before the last round is older than a batch waits.
        if (round < 2) {
          await until("the round is listed", async () => {
            const ids = new Set(await listed(0, "&status=404"));
            return batch.every((id) => ids.has(id));
          });
        }
      }
      const { gateway } = instances[1]!;
      gateway.signal("SIGKILL");
      await gateway.exited;
      const ids = await listed(0, "&status=404");
      expect(new Set(ids).size).toBe(ids.length);
      for (const id of [...batches[0]!, ...batches[1]!]) expect(ids).toContain(id);
      // The other one goes on.
      const later = await send(0, "none");
      await until("it is listed", async () => (await listed(0)).includes(later));
    },
    TIMEOUT_MS,
  );
});
