import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 90_000;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("presets of two instances", () => {
  let cluster: Cluster;
  let instances: Instance[];
  beforeAll(async () => {
    cluster = await openCluster(redis!.url);
    instances = [await cluster.start(), await cluster.start()];
  }, TIMEOUT_MS);
  afterAll(() => cluster?.stop());

  const send = (at: number, method: string, path: string, body: object, key: string) =>
    fetch(`${instances[at]!.baseUrl}${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });

  async function answerOf(at: number, preset: string): Promise<string> {
    const body = { preset, messages: [{ role: "user", content: "hello" }], max_tokens: 4 };
    const response = await send(at, "POST", "/v1/chat/completions", body, cluster.secretKey);
    const { model, error } = (await response.json()) as {
      model?: string;
      error?: { code: string };
    };
    return model ?? error!.code;
  }

  test(
    "what one instance changes, the other one has within moments",
    async () => {
      const preset = { name: "shared", model: "sandbox/chat" };
      const made = await send(0, "POST", "/v1/presets", preset, cluster.managementKey);
      const { id } = (await made.json()) as { id: string };
      await until(
        "the preset is known",
        async () => (await answerOf(1, "shared")) === "sandbox/chat",
      );
      const path = `/v1/presets/${id}`;
      const model = "sandbox/chat-2026-01-01";
      await send(0, "PATCH", path, { model }, cluster.managementKey);
      await until("the change is known", async () => (await answerOf(1, id)) === model);
      await send(1, "DELETE", path, {}, cluster.managementKey);
      await until("it is gone", async () => (await answerOf(0, "shared")) === "preset_not_found");
      expect(await answerOf(1, id)).toBe("preset_not_found");
    },
    TIMEOUT_MS,
  );
});
