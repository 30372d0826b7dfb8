import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { brokenRules, look, orphanAttempts } from "../crash/books.ts";
import { exitOf } from "../crash/gateway-process.ts";
import { responseEvents } from "../support/open-responses.ts";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster, stopInOrder } from "./cluster.ts";

/* Background responses that are seen, followed and ended on another instance than the one that runs them. */

const TIMEOUT_MS = 90_000;
/** From a kill to the state that its response has then: the lease, and what a busy machine takes to judge. */
const DEATH_MS = INSTANCE_LEASE_MS + 12_000;
const redis = await findTestRedis();
type Fields = Record<string, unknown>;

describe.skipIf(redis === undefined)("background responses of several instances", () => {
  let cluster: Cluster;
  let runner: Instance;
  let other: Instance;
  beforeAll(async () => {
    cluster = await openCluster(redis!.url);
    await cluster.upstream.behave("crawling", { do: "endless", delayMs: 20 });
    [runner, other] = await Promise.all([cluster.start(), cluster.start()]);
  }, TIMEOUT_MS);
  afterAll(() => cluster?.stop());

  const ask = ({ baseUrl }: Instance, method: string, path: string, body?: object) =>
    fetch(`${baseUrl}/v1/responses${path}`, {
      method,
      headers: {
        authorization: `Bearer ${cluster.secretKey}`,
        "content-type": "application/json",
      },
      ...(body && { body: JSON.stringify(body) }),
    });
  const begin = async (model: string, instance = runner) => {
    const body = { model: `test/${model}`, input: "hello", background: true };
    const response = await ask(instance, "POST", "", body);
    const begun = (await response.json()) as Fields;
    expect([response.status, begun.status]).toEqual([200, "queued"]);
    return begun.id as string;
  };
  const found = async (id: string, instance = other) =>
    (await (await ask(instance, "GET", `/${id}`)).json()) as Fields;
  const whenStatus = (id: string, status: string, withinMs?: number) =>
    until(
      `${id} is ${status}`,
      async () => {
        const response = await found(id);
        return response.status === status && response;
      },
      withinMs,
    );
  const expectNothingHeld = () =>
    look(cluster.databaseUrl, async (sql) => {
      await until("nothing is held", async () => {
        const [row] = await sql`SELECT (SELECT count(*) FROM holds)
          + (SELECT count(*) FROM attempts) AS left`;
        return Number(row!.left) === 0;
      });
      expect([await orphanAttempts(sql), await brokenRules(sql)]).toEqual([0, []]);
    });

  test(
    "are followed there to the same end, event by event",
    async () => {
      const id = await begin("steady");
      const texts = await Promise.all(
        [runner, other].map(async (instance) =>
          (await ask(instance, "GET", `/${id}?stream=true`)).text(),
        ),
      );
      const [here, there] = texts.map((text) => responseEvents(text));
      expect(there).toEqual(here!);
      expect(here!.at(-1)!.type).toBe("response.completed");
      expect(here!.length).toBeGreaterThan(300);
    },
    TIMEOUT_MS,
  );

  test(
    "are cancelled there, and charged",
    async () => {
      const id = await begin("crawling");
      await whenStatus(id, "in_progress");
      const cancelled = (await (await ask(other, "POST", `/${id}/cancel`)).json()) as Fields;
      expect(cancelled.status).toBe("cancelled");
      expect(await found(id, runner)).toEqual(cancelled);
      await expectNothingHeld();
    },
    TIMEOUT_MS,
  );

  test(
    "end with an instance that is stopped, told and charged",
    async () => {
      const stopped = await cluster.start(0, { GATEWAY_SHUTDOWN_GRACE_MS: "500" });
      const id = await begin("crawling", stopped);
      await whenStatus(id, "in_progress");
      expect(await stopInOrder(stopped)).toBe(0);
      expect(await found(id)).toMatchObject({ status: "failed", error: { code: "overloaded" } });
      await expectNothingHeld();
    },
    TIMEOUT_MS,
  );

  test(
    "have failed once the instance that ran them is dead, with what they had produced charged",
    async () => {
      const id = await begin("crawling");
      const following = ask(other, "GET", `/${id}?stream=true`).then((stream) => stream.text());
      await whenStatus(id, "in_progress");
      await until("something is charged if it dies", () =>
        look(cluster.databaseUrl, async (sql) => {
          const [row] = await sql`SELECT count(*)::int AS attempts FROM attempts`;
          return row!.attempts === 1;
        }),
      );
      runner.gateway.signal("SIGKILL");
      await exitOf(runner.gateway);
      const failed = await whenStatus(id, "failed", DEATH_MS);
      expect(failed).toMatchObject({ output: [], error: { code: "internal" } });
      await expectNothingHeld();
      const events = responseEvents(await following);
      expect(events.at(-1)).toMatchObject({ type: "response.failed", response: failed });
      const [charge] = await look(cluster.databaseUrl, async (sql) => {
        const requestId = id.replace("resp_", "req_");
        return [...(await sql`SELECT status FROM transactions WHERE request_id = ${requestId}`)];
      });
      expect(charge).toMatchObject({ status: 500 });
    },
    TIMEOUT_MS,
  );
});
