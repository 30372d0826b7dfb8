import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findTestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

const TIMEOUT_MS = 90_000;
const LIMIT = 5;
const ANSWER_MS = 60;
const redis = await findTestRedis();

/** A server that counts the calls which run at once; those whose prompt is "hang" never end. */
function startServer() {
  const calls = { running: 0, most: 0 };
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      const { messages } = (await request.json()) as { messages: { content: string }[] };
      calls.most = Math.max(calls.most, ++calls.running);
      const { promise: left, resolve } = Promise.withResolvers<void>();
      request.signal.addEventListener("abort", () => resolve());
      await Promise.race([messages[0]!.content === "hang" ? left : Bun.sleep(ANSWER_MS), left]);
      calls.running--;
      const message = { role: "assistant", content: "Hello." };
      return Response.json({
        ...{ id: "c", object: "chat.completion", created: 1, model: "m" },
        choices: [{ index: 0, message, finish_reason: "stop" }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
      });
    },
  });
  return { calls, baseUrl: `http://127.0.0.1:${server.port}/v1`, stop: () => server.stop(true) };
}

describe.skipIf(redis === undefined)("three gateways that share a limit of parallel calls", () => {
  const folder = mkdtempSync(join(tmpdir(), "parallel-limits-"));
  let server: ReturnType<typeof startServer>;
  let cluster: Cluster;
  let instances: Instance[];
  beforeAll(async () => {
    server = startServer();
    const id = `server-${crypto.randomUUID()}`;
    const entry = { type: "openai-compatible", base_url: server.baseUrl };
    const configuration = {
      providers: [{ id, ...entry, max_parallel_requests: LIMIT }],
      models: [{ id: "test/m", category: "chat", endpoints: [{ provider: id, model: "m" }] }],
    };
    const path = join(folder, "gateway.config.json");
    writeFileSync(path, JSON.stringify(configuration));
    const settings = { GATEWAY_CONFIG: path, GATEWAY_HEALTH_CHECK_SECONDS: "0" };
    cluster = await openCluster(redis!.url, { ...settings, GATEWAY_MODEL_LISTS_SECONDS: "0" });
    // The first one migrates.
    const first = await cluster.start();
    instances = [first, ...(await Promise.all([cluster.start(), cluster.start()]))];
  }, TIMEOUT_MS);
  afterAll(async () => {
    await cluster.stop();
    await server.stop();
    rmSync(folder, { recursive: true });
  });

  const chat = ({ baseUrl }: Instance, content = "hello") =>
    fetch(`${baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${cluster.secretKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify({ model: "test/m", messages: [{ role: "user", content }] }),
    });

  test(
    "never run more together, use all of it, and serve everyone who waits",
    async () => {
      const asked = Array.from({ length: 90 }, (_, at) => chat(instances[at % 3]!));
      const statuses = (await Promise.all(asked)).map(({ status }) => status);
      expect(new Set(statuses)).toEqual(new Set([200]));
      expect(server.calls.most).toBe(LIMIT);
    },
    TIMEOUT_MS,
  );

  test(
    "get back the places of one that is killed, once its lease has ended",
    async () => {
      const [dying, other] = instances as [Instance, Instance];
      const hanging = Array.from({ length: LIMIT }, () => chat(dying, "hang").catch(() => {}));
      await until("they run", () => server.calls.running === LIMIT);
      const waiting = chat(other);
      dying.gateway.signal("SIGKILL");
      await Promise.all(hanging);
      expect((await waiting).status).toBe(200);
      expect(server.calls.most).toBe(LIMIT);
    },
    TIMEOUT_MS,
  );
});
