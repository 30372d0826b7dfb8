import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { findRedisBinary } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { until } from "../support/until.ts";

const binary = await findRedisBinary();
const BACK_MS = 15_000;

describe.skipIf(binary === null)("a gateway whose rate limits are counted in Redis", () => {
  let server: RedisServer;
  let gateway: TestGateway;
  beforeAll(async () => {
    server = await RedisServer.start(binary!);
    gateway = await startTestGateway({ environment: { REDIS_URL: server.url } });
  });
  afterAll(async () => {
    await gateway.stop();
    await server.kill();
  });

  const chat = (key: string) =>
    gateway.request(
      "POST",
      "/v1/chat/completions",
      { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }] },
      { key },
    );
  const statusOf = async (key: string) => {
    const response = await chat(key);
    await response.text();
    return response.status;
  };
  const readyz = async () => {
    const response = await fetch(`${gateway.baseUrl}/readyz`);
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const metric = async (name: string) => {
    const text = await gateway.telemetry.metrics();
    return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1]);
  };
  const linesWith = (text: string) => gateway.logLines.filter((line) => line.includes(text));

  test("is ready, and refuses what is above a limit with the headers that describe its window", async () => {
    const ready = await until("ready", async () => {
      const one = await readyz();
      return one.status === 200 && one;
    });
    expect(ready.body).toEqual({
      status: "ok",
      checks: { database: "ok", ledger: "ok", draining: "ok", redis: "ok" },
    });
    const secret = await addSecretKey(gateway, { rateLimitRpm: 2 });
    const first = await chat(secret);
    expect(first.status).toBe(200);
    await first.text();
    expect(first.headers.get("x-ratelimit-remaining")).toBe("1");
    const resetInSeconds = Number(first.headers.get("x-ratelimit-reset")) - Date.now() / 1_000;
    expect(resetInSeconds).toBeWithin(50, 62);
    expect(await statusOf(secret)).toBe(200);
    const refused = await chat(secret);
    await expectError(refused, 429, "rate_limit_exceeded");
    expect(Number(refused.headers.get("retry-after"))).toBeWithin(50, 61);
    expect(await metric("gateway_redis_up")).toBe(1);
  });

  test("goes on without Redis and with it again, remembers what it admitted, and tells each once", async () => {
    const [before, during] = [
      await addSecretKey(gateway, { rateLimitRpm: 2 }),
      await addSecretKey(gateway, { rateLimitRpm: 2 }),
    ];
    expect([await statusOf(before), await statusOf(before)]).toEqual([200, 200]);
    await server.kill();
    expect(await statusOf(before)).toBe(429);
    expect([await statusOf(during), await statusOf(during)]).toEqual([200, 200]);
    expect(await statusOf(during)).toBe(429);
    const unready = await until("it to be not ready", async () => {
      const answer = await readyz();
      return answer.status === 503 && answer;
    });
    expect(unready.body).toMatchObject({ status: "not ready", checks: { redis: "unreachable" } });
    expect(await metric("gateway_redis_up")).toBe(0);
    expect(await metric("gateway_rate_admissions_apart_total")).toBe(2);
    expect(linesWith("Redis is lost")).toHaveLength(1);

    await server.start();
    await until("it to be ready", async () => (await readyz()).status === 200, BACK_MS);
    expect(await metric("gateway_redis_up")).toBe(1);
    expect(await statusOf(before)).toBe(429);
    expect(await statusOf(during)).toBe(429);
    expect(linesWith("Redis is lost")).toHaveLength(1);
    const [back, ...more] = linesWith("Redis is back");
    expect(more).toEqual([]);
    expect(JSON.parse(back!)).toMatchObject({ admitted_apart: 2 });
  }, 60_000);

  test("answers where Redis hangs, without waiting for it twice", async () => {
    const secret = await addSecretKey(gateway, { rateLimitRpm: 100 });
    server.pause();
    for (let i = 0; i < 20; i++) expect(await statusOf(secret)).toBe(200);
    await until("it to be not ready", async () => (await readyz()).status === 503);
    server.resume();
    await until("it to be ready", async () => (await readyz()).status === 200, BACK_MS);
    expect(await statusOf(secret)).toBe(200);
  }, 60_000);
});
