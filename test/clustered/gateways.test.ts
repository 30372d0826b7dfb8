import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { auditOf } from "../crash/audit.ts";
import { look } from "../crash/books.ts";
import { holdsEnded } from "../crash/gateway-process.ts";
import { receive, type Sent, sentOf } from "../crash/load.ts";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster, stopInOrder } from "./cluster.ts";
import { kindOf, sendKind, startRollingLoad } from "./rolling-load.ts";

const TIMEOUT_MS = 90_000;
/** Contract §5: a change takes effect on every instance within a second. */
const REVOCATION_MS = 1_000;
/** A loaded machine. */
const TOLERANCE_MS = 500;
/** Requests a second while all are restarted; 200 is the full proof. */
const ROLLING_RATE = Number(process.env.GATEWAY_TEST_ROLLING_RATE ?? 40);
/** Streams must be able to end on a machine that such a rate keeps busy. */
const GRACE_MS = ROLLING_RATE > 100 ? 12_000 : 4_000;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("several gateways", () => {
  let cluster: Cluster;
  let instances: Instance[];
  beforeAll(async () => {
    // A quarter of the grace is the notice of a stop.
    cluster = await openCluster(redis!.url, { GATEWAY_SHUTDOWN_GRACE_MS: String(GRACE_MS) });
    // The first one migrates.
    const first = await cluster.start();
    instances = [first, ...(await Promise.all([cluster.start(), cluster.start()]))];
  }, TIMEOUT_MS);
  afterAll(() => cluster.stop());

  const send = (instance: Instance, kind: string, key = cluster.secretKey): Promise<Sent> =>
    sendKind(instance, kind, key);

  async function newKey(instance: Instance): Promise<{ id: string; key: string }> {
    const response = await fetch(`${instance.baseUrl}/v1/keys`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${cluster.managementKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({ name: crypto.randomUUID() }),
    });
    expect(response.status).toBe(201);
    return response.json() as Promise<{ id: string; key: string }>;
  }

  /** Uses the key without a pause; returns when the last request began that was still served. */
  async function useUntilRefused(instance: Instance, key: string): Promise<number> {
    let lastServedMs = 0;
    for (;;) {
      const sent = await send(instance, "plain", key);
      if (sent.status === 401) return lastServedMs;
      expect(sent.status).toBe(200);
      lastServedMs = sent.startedAtMs;
    }
  }

  test(
    "a key that is switched off at one is refused at the others within a second, in use or not, heard of or not",
    async () => {
      const [first, second] = instances as [Instance, Instance];
      const [told, missed] = [await newKey(first), await newKey(first)];
      for (const { key } of [told, missed]) {
        await until(
          "the second one knows it",
          async () => (await send(second, "plain", key)).isWhole,
        );
      }
      const refusals = [useUntilRefused(second, told.key), useUntilRefused(second, missed.key)];
      const response = await fetch(`${first.baseUrl}/v1/keys/${told.id}`, {
        method: "PATCH",
        headers: {
          authorization: `Bearer ${cluster.managementKey}`,
          "content-type": "application/json",
        },
        body: JSON.stringify({ is_active: false }),
      });
      const toldAtMs = performance.now();
      expect(response.status).toBe(200);
      // The same without its notification: that was lost on the way.
      await look(cluster.databaseUrl, (sql) =>
        sql.begin(async (transaction) => {
          await transaction`UPDATE api_keys SET is_active = false WHERE id = ${missed.id}`;
          await transaction`INSERT INTO changes (kind, object_id) VALUES ('api-key', ${missed.id})`;
        }),
      );
      const missedAtMs = performance.now();
      const [toldMs, lostMs] = await Promise.all(refusals);
      expect(toldMs! - toldAtMs).toBeLessThan(REVOCATION_MS + TOLERANCE_MS);
      expect(lostMs! - missedAtMs).toBeLessThan(REVOCATION_MS + TOLERANCE_MS);
      console.log(
        `last served ${Math.round(toldMs! - toldAtMs)} ms after the change, ${Math.round(lostMs! - missedAtMs)} ms where the notification was lost`,
      );
    },
    TIMEOUT_MS,
  );

  test(
    "restarted one after the other under load they lose no request of clients that ask which ones are ready",
    async () => {
      const load = startRollingLoad(instances, {
        ratePerSecond: ROLLING_RATE,
        lookMs: 100,
        key: cluster.secretKey,
      });
      await until("all are ready", () => instances.every((_, n) => load.isReady(n)));
      for (let n = 0; n < instances.length; n++) {
        const port = Number(new URL(instances[n]!.baseUrl).port);
        expect(await stopInOrder(instances[n]!)).toBe(0);
        instances[n] = await cluster.start(port);
        await until("it is ready", () => load.isReady(n));
      }
      const all = await load.end();
      console.log(`${all.length} requests, ${ROLLING_RATE} a second, during three restarts`);
      expect(all.filter(({ isWhole }) => !isWhole)).toEqual([]);
      expect(all.length).toBeGreaterThan(50);
      await Promise.all(instances.map(({ baseUrl }) => holdsEnded(baseUrl)));
      expect(await auditOf(cluster.databaseUrl, cluster.upstream, all)).toEqual([]);
    },
    TIMEOUT_MS,
  );

  test(
    "one that is paused past its lease in mid-stream says nothing more when it wakes, and its streams are charged once",
    async () => {
      const [paused, heir] = instances as [Instance, Instance];
      const sent = ["crawling", "steady"].map((name) => sentOf(crypto.randomUUID(), kindOf(name)));
      const ended = sent.map((one) =>
        receive(one, paused.baseUrl, cluster.secretKey).catch(() => {}),
      );
      await until("the streams deliver", () =>
        sent.every(({ tokenTimesMs }) => tokenTimesMs.length > 1),
      );
      paused.gateway.signal("SIGSTOP");
      const attempts = () =>
        look(cluster.databaseUrl, (sql) => sql`SELECT request_id FROM attempts`);
      expect((await attempts()).length).toBeGreaterThan(0);
      await until(
        "the other one has settled what was running",
        async () => (await attempts()).length === 0,
        INSTANCE_LEASE_MS + 10_000,
      );
      const delivered = sent.map(({ tokenTimesMs }) => tokenTimesMs.length);
      paused.gateway.signal("SIGCONT");
      expect(await paused.gateway.exited).toBe(1);
      for (const one of sent) one.wasCut = true;
      await Promise.all(ended);
      // What was in its socket may still have come.
      for (const [n, { tokenTimesMs }] of sent.entries()) {
        expect(tokenTimesMs.length - delivered[n]!).toBeLessThan(20);
      }
      expect((await send(heir, "plain")).isWhole).toBeTrue();
      expect(await auditOf(cluster.databaseUrl, cluster.upstream, sent)).toEqual([]);
    },
    TIMEOUT_MS,
  );
});
