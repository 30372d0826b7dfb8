import { afterAll, describe, expect, test } from "bun:test";
import { connectDatabase } from "../../db/client.ts";
import { runCliProcess } from "../cli/cli-runs.ts";
import { base64, newKey, openedBy } from "../master-key/sealed-database.ts";
import { findTestRedis } from "../support/redis.ts";
import { type Cluster, type Instance, openCluster, stopInOrder } from "./cluster.ts";

const TIMEOUT_MS = 120_000;
const OLD = newKey();
const NEW = newKey();
const ONLY_OLD = { GATEWAY_MASTER_KEY: base64(OLD) };
const BOTH = { GATEWAY_MASTER_KEY: base64(NEW), GATEWAY_MASTER_KEY_PREVIOUS: base64(OLD) };
const ONLY_NEW = { GATEWAY_MASTER_KEY: base64(NEW) };
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("several gateways whose master key is replaced", () => {
  let cluster: Cluster;
  afterAll(() => cluster?.stop());

  /** A call under an idempotency key: its status, and whether its answer was a stored one. */
  async function call({ baseUrl }: Instance, name: string) {
    const response = await fetch(`${baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${cluster.secretKey}`,
        "content-type": "application/json",
        "idempotency-key": name,
      },
      body: JSON.stringify({
        model: "sandbox/chat",
        messages: [{ role: "user", content: name }],
        max_tokens: 16,
      }),
    });
    await response.text();
    return {
      status: response.status,
      isReplay: response.headers.has("x-gateway-idempotent-replay"),
    };
  }

  const post = async ({ baseUrl }: Instance, path: string, body?: object) => {
    const response = await fetch(baseUrl + path, {
      method: "POST",
      headers: {
        authorization: `Bearer ${cluster.managementKey}`,
        ...(body && { "content-type": "application/json" }),
      },
      body: body && JSON.stringify(body),
    });
    return { status: response.status, body: (await response.json()) as { id: string } };
  };

  test(
    "one after the other go on answering what each of them has sealed, before, during and after it",
    async () => {
      cluster = await openCluster(redis!.url, { ...ONLY_OLD, GATEWAY_SHUTDOWN_GRACE_MS: "2000" });
      const rotate = () =>
        runCliProcess(
          { DATABASE_URL: cluster.databaseUrl, ...BOTH },
          ...["master-key", "rotate", "--json"],
        );
      const known: string[] = [];
      const answerAll = async (instances: readonly Instance[]) => {
        for (const instance of instances) {
          for (const name of known) {
            expect({ name, ...(await call(instance, name)) }).toEqual({
              name,
              status: 200,
              isReplay: true,
            });
          }
          const name = `call ${known.length}`;
          expect(await call(instance, name)).toEqual({ status: 200, isReplay: false });
          known.push(name);
        }
      };
      let first = await cluster.start();
      let second = await cluster.start();
      await answerAll([first, second]);
      const hook = { url: "https://example.com/hook", events: ["key.created"] };
      const { body: webhook } = await post(first, "/v1/webhooks", hook);

      expect(await stopInOrder(first)).toBe(0);
      first = await cluster.start(0, BOTH);
      // What the one that knows both keys seals is opened by the one that knows the old one alone.
      await answerAll([first, second, first]);
      const early = await rotate();
      expect(early.exitCode).toBe(1);
      expect(early.stderr).toContain("do not know the new master key yet");

      expect(await stopInOrder(second)).toBe(0);
      second = await cluster.start(0, BOTH);
      await answerAll([first, second]);

      const outcomes = new Map<string, number>();
      let isRotated = false;
      const load = [first, second].map(async (instance, n) => {
        for (let i = 0; !isRotated; i++) {
          const name = `load ${n} ${i}`;
          known.push(name);
          const results = [
            (await call(instance, name)).status,
            (await call(n === 0 ? second : first, name)).status,
            // An organization has a limited number of them, and a rotation may take long.
            i < 5 ? (await post(instance, "/v1/webhooks", hook)).status : 201,
            (await post(instance, `/v1/webhooks/${webhook.id}/rotate_secret`)).status,
          ];
          for (const [step, status] of results.entries()) {
            const outcome = `${step}: ${status}`;
            outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
          }
        }
      });
      const rotation = await rotate();
      isRotated = true;
      await Promise.all(load);
      expect(rotation.exitCode).toBe(0);
      expect([...outcomes.keys()].sort()).toEqual(["0: 200", "1: 200", "2: 201", "3: 200"]);
      await answerAll([first, second]);

      const sql = connectDatabase(
        { url: cluster.databaseUrl },
        { poolSize: 1, applicationName: "look" },
      );
      const { opened, lost } = await openedBy(sql, OLD, NEW);
      expect({ old: opened[0], lost }).toEqual({ old: 0, lost: 0 });
      expect(opened[1]).toBeGreaterThan(known.length);
      await sql.end();

      expect(await stopInOrder(first)).toBe(0);
      first = await cluster.start(0, ONLY_NEW);
      expect(await stopInOrder(second)).toBe(0);
      await expect(cluster.start(0, ONLY_OLD)).rejects.toThrow("is not the master key");
      await answerAll([first]);
    },
    TIMEOUT_MS,
  );
});
