import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { findTestRedis } from "../support/redis.ts";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

/*
 * Three gateways under a steady load while an operator makes 50 changes of the configuration. A longer run:
 *
 *   GATEWAY_TEST_CONFIGURATION_RPS=2000 bun test/run.ts test/clustered/stored-configuration.test.ts
 */

const REQUESTS_PER_SECOND = Number(process.env.GATEWAY_TEST_CONFIGURATION_RPS ?? 150);
const TIMEOUT_MS = 240_000;
/** The time after which a change is in force on every instance (contract 13). */
const IN_FORCE_MS = 1_000;
const ROUNDS = 10;
const OPERATOR_KEY = generateApiKey("operator").key;
/** Output tokens of a stubbed chat; input tokens are free here. */
const OUTPUT_TOKENS = 5;
const redis = await findTestRedis();

type Fields = Record<string, unknown>;

interface Answer {
  readonly startedMs: number;
  readonly status: number;
  readonly costUsd: number;
  readonly text: string;
}

describe.skipIf(redis === undefined)("three gateways through 50 changes", () => {
  const stubs: StubProvider[] = [];
  let cluster: Cluster;
  let instances: Instance[];
  beforeAll(async () => {
    for (let at = 0; at <= ROUNDS; at++) stubs.push(startStubProvider());
    cluster = await openCluster(redis!.url, {
      GATEWAY_OPERATOR_KEY: OPERATOR_KEY,
      GATEWAY_PLAN: "enterprise",
    });
    const first = await cluster.start();
    instances = [first, ...(await Promise.all([cluster.start(), cluster.start()]))];
  }, TIMEOUT_MS);
  afterAll(async () => {
    await cluster?.stop();
    for (const stub of stubs) stub.stop();
  });

  /** Sends a change to one of the instances. Throws if it is rejected. */
  async function admin(
    method: string,
    path: string,
    body?: Fields,
    version?: number,
  ): Promise<void> {
    const { baseUrl } = instances[Math.floor(Math.random() * instances.length)]!;
    const response = await fetch(`${baseUrl}/v1/admin/${path}`, {
      method,
      headers: {
        authorization: `Bearer ${OPERATOR_KEY}`,
        "content-type": "application/json",
        ...(version !== undefined && { "if-match": `"${version}"` }),
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`);
  }

  async function chat(at: number): Promise<Answer> {
    const startedMs = Date.now();
    const response = await fetch(`${instances[at % 3]!.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${cluster.secretKey}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "steady", messages: [{ role: "user", content: "Hi" }] }),
    });
    const text = await response.text();
    const costUsd = Number(response.headers.get("x-gateway-cost"));
    return { startedMs, status: response.status, costUsd, text };
  }

  test(
    "no request fails, each has a price that was in force, and no deleted provider is called after a second",
    async () => {
      const model = (provider: string, price: number) => ({
        context_length: 4096,
        input_cost_per_token: 0,
        output_cost_per_token: price,
        endpoints: [{ provider, model: "steady" }],
      });
      const providerOf = (at: number) => ({
        ...{ id: `p${at}`, type: "openai-compatible", base_url: stubs[at]!.url },
        api_key: `sk-of-the-provider-${at}-1234567890`,
      });
      await admin("POST", "providers", providerOf(0));
      await admin("POST", "models", { id: "acme/steady", ...model("p0", 1e-6) });
      await admin("POST", "aliases", { id: "steady", models: [{ id: "acme/steady" }] });
      await Bun.sleep(IN_FORCE_MS);

      const answers: Promise<Answer>[] = [];
      let sent = 0;
      const load = setInterval(() => {
        for (let more = REQUESTS_PER_SECOND / 50; more >= 1; more--) answers.push(chat(sent++));
      }, 20);
      /** Prices, each with the times between which requests may still have, or already have it. */
      const prices = [{ usd: 1e-6, fromMs: 0, untilMs: Number.POSITIVE_INFINITY }];
      const deleted: { readonly at: number; readonly afterMs: number }[] = [];
      let modelVersion = 1;
      for (let at = 1; at <= ROUNDS; at++) {
        await admin("POST", "providers", providerOf(at));
        const usd = (at + 1) * 1e-6;
        const fromMs = Date.now();
        await admin("PATCH", "models/acme/steady", model(`p${at}`, usd), modelVersion++);
        prices.at(-1)!.untilMs = Date.now() + IN_FORCE_MS;
        prices.push({ usd, fromMs, untilMs: Number.POSITIVE_INFINITY });
        const models = [{ id: "acme/steady", weight: at }];
        await admin("PATCH", "aliases/steady", { models }, at);
        await admin("PATCH", `providers/p${at}`, { api_key: `sk-rotated-${at}-12345678` }, 1);
        await admin("DELETE", `providers/p${at - 1}`, undefined, at === 1 ? 1 : 2);
        deleted.push({ at: at - 1, afterMs: Date.now() + IN_FORCE_MS });
        await Bun.sleep(150);
      }
      await Bun.sleep(IN_FORCE_MS + 300);
      clearInterval(load);
      const all = await Promise.all(answers);
      console.info(`${all.length} requests through ${5 * ROUNDS} changes`);
      expect(all.filter(({ status }) => status !== 200).map(({ text }) => text)).toEqual([]);
      for (const { startedMs, costUsd } of all) {
        const valid = prices
          .filter(
            ({ fromMs, untilMs }) => startedMs >= fromMs - IN_FORCE_MS && startedMs <= untilMs,
          )
          .map(({ usd }) => Math.round(usd * OUTPUT_TOKENS * 1e9));
        expect(valid).toContain(Math.round(costUsd * 1e9));
      }
      for (const { at, afterMs } of deleted) {
        expect(stubs[at]!.requests.filter(({ atMs }) => atMs > afterMs)).toEqual([]);
      }
      expect(stubs[ROUNDS]!.requests.at(-1)!.authorization).toBe(
        `Bearer sk-rotated-${ROUNDS}-12345678`,
      );
    },
    TIMEOUT_MS,
  );
});
