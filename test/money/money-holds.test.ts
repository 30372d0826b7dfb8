import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed, gauge } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";
import {
  BRIEF_LIMIT_TOKENS,
  EXACT_TOKENS,
  type MoneyGateway,
  ROOMY_LIMIT_TOKENS,
  startMoneyGateway,
  TOKEN_CHARGE_NANO,
} from "./money-gateway.ts";

const WAIT_LIMIT_MS = 2_000;

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway({ creditUsd: 100 });
});
afterAll(() => gateway.stop());

const usdForTokens = (tokens: number) => Number(BigInt(tokens) * TOKEN_CHARGE_NANO) / 1e9;
const keyFor = (tokens: number) => gateway.addKey({ daily_budget_usd: usdForTokens(tokens) });

const chat = (key: string, body: Record<string, unknown>, init: RequestInit = {}) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    { messages: [{ role: "user", content: "hi" }], ...body },
    { key, ...init },
  );

const lastSentLimit = () => gateway.upstream.served.at(-1)!.requestBody!.max_tokens;

describe("a request without a limit of its own", () => {
  test("is not limited where the model's own is affordable", async () => {
    const { secret } = await keyFor(ROOMY_LIMIT_TOKENS);
    const response = await chat(secret, { model: "test/roomy" });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-gateway-max-tokens")).toBeNull();
    expect(lastSentLimit()).toBeUndefined();
  });

  test.each([
    [
      "4,096 tokens where one less than the model's limit is affordable",
      ROOMY_LIMIT_TOKENS - 1,
      4_096,
    ],
    ["4,096 tokens where just these are affordable", 4_096, 4_096],
    ["all that is affordable below that", 4_095, 4_095],
    ["256 tokens at the least", 256, 256],
  ])("is limited to %s, upstream and in a header", async (_, affordable, limit) => {
    for (const stream of [false, true]) {
      const { secret } = await keyFor(affordable);
      const response = await chat(secret, { model: "test/roomy", stream });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-max-tokens")).toBe(String(limit));
      await response.text();
      expect(lastSentLimit()).toBe(limit);
    }
  });

  test.each([false, true])(
    "is limited to no more than its model gives, where a fallback may give more; streamed: %p",
    async (stream) => {
      const { secret } = await keyFor(4_096);
      const models = ["test/brief", "test/roomy"];
      const response = await chat(secret, { models, stream });
      expect(response.status).toBe(200);
      expect(response.headers.get("x-gateway-max-tokens")).toBe(String(BRIEF_LIMIT_TOKENS));
      await response.text();
      expect(lastSentLimit()).toBe(BRIEF_LIMIT_TOKENS);
    },
  );

  test("is 402 where fewer than 256 are affordable, and is told how many", async () => {
    const { secret } = await keyFor(255);
    const { error } = await expectError(
      await chat(secret, { model: "test/roomy" }),
      402,
      "budget_exhausted",
    );
    expect(error.message).toContain("255 output tokens");
    expect((await chat(secret, { model: "test/roomy", max_tokens: 255 })).status).toBe(200);
  });
});

test("a limit that the caller set is never lowered", async () => {
  const { secret } = await keyFor(5_000);
  const body = { model: "test/roomy", max_tokens: 5_001 };
  const { error } = await expectError(await chat(secret, body), 402, "budget_exhausted");
  expect(error.message).toContain("5000 output tokens");
  expect(error.message).toContain("daily budget");
});

test("a balance too small is 402 insufficient_credits, and says what is there", async () => {
  const { secretKey } = await gateway.addOrganization({ creditUsd: usdForTokens(300) });
  const { error } = await expectError(
    await chat(secretKey, { model: "test/roomy", max_tokens: 301 }),
    402,
    "insufficient_credits",
  );
  expect(error.message).toContain("0.000312 USD");
  expect(error.message).toContain("300 output tokens");
});

describe("a request that is short only because of another one's hold", () => {
  /** Sends a request that the upstream answers when told to, and waits until its money is held. */
  async function holdAll(secret: string, delayMs: number) {
    const held = await gauge(gateway, "gateway_holds_outstanding");
    gateway.upstream.enqueue("exact", {
      do: "complete",
      content: "word",
      events: 1,
      firstDelayMs: delayMs,
    });
    const answer = chat(secret, { model: "test/exact", max_tokens: 4_096 });
    await until(
      "the first request holds its money",
      async () => (await gauge(gateway, "gateway_holds_outstanding")) > held,
    );
    return { answer };
  }

  test("waits for it, and has the money once it is free", async () => {
    const { secret } = await keyFor(4_096);
    const startedMs = performance.now();
    const first = await holdAll(secret, 400);
    const second = await chat(secret, { model: "test/exact", max_tokens: 4_000 });
    expect(second.status).toBe(200);
    expect(performance.now() - startedMs).toBeGreaterThan(350);
    expect((await first.answer).status).toBe(200);
  });

  test("is 402 after two seconds of waiting, and says what would be affordable now", async () => {
    const { secret } = await keyFor(4_096);
    const first = await holdAll(secret, WAIT_LIMIT_MS + 1_000);
    const startedMs = performance.now();
    const second = await chat(secret, { model: "test/exact", max_tokens: 1 });
    const { error } = await expectError(second, 402, "budget_exhausted");
    expect(error.message).toContain("No output tokens would have been affordable");
    expect(performance.now() - startedMs).toBeWithin(WAIT_LIMIT_MS - 50, WAIT_LIMIT_MS + 900);
    expect((await first.answer).status).toBe(200);
    expect((await chat(secret, { model: "test/exact", max_tokens: 1 })).status).toBe(200);
  });

  test("waits behind those that came before it", async () => {
    const { secret } = await keyFor(4_096);
    const finished: string[] = [];
    const first = await holdAll(secret, 400);
    const ask = async (name: string, maxTokens: number) => {
      const response = await chat(secret, { model: "test/exact", max_tokens: maxTokens });
      finished.push(`${name} ${response.status}`);
    };
    const large = ask("large", 4_095);
    await until(
      "the large one waits",
      async () => (await gauge(gateway, "gateway_requests_in_flight")) === 2,
    );
    // Affordable beside the first one's hold only if it may pass the large one by.
    await Promise.all([large, ask("small", 1)]);
    expect(finished).toEqual(["large 200", "small 200"]);
    expect((await first.answer).status).toBe(200);
  });
});

test("a client that goes away gives back what it did not use", async () => {
  const { id, secret } = await keyFor(ROOMY_LIMIT_TOKENS);
  gateway.upstream.enqueue("roomy", {
    do: "complete",
    content: "word".repeat(500),
    events: 500,
    delayMs: 2,
  });
  const abort = new AbortController();
  const response = await chat(
    secret,
    { model: "test/roomy", stream: true },
    { signal: abort.signal },
  );
  const reader = response.body!.getReader();
  await reader.read();
  abort.abort();
  await reader.read().catch(() => {});
  await expectBooksClosed(gateway);
  const [charge] = await gateway.sql`
    SELECT -amount_nano AS nano, status FROM transactions WHERE key_id = ${id}`;
  expect(charge).toMatchObject({ status: 499 });
  const charged = Number(charge!.nano / TOKEN_CHARGE_NANO);
  expect(charged).toBeWithin(1, 500);
  const rest = ROOMY_LIMIT_TOKENS - charged;
  expect((await chat(secret, { model: "test/roomy", max_tokens: rest })).status).toBe(200);
});

test("a failed request gives all of it back", async () => {
  const { id, secret } = await keyFor(EXACT_TOKENS);
  const body = { model: "test/exact", max_tokens: EXACT_TOKENS };
  for (const stream of [false, true]) {
    gateway.upstream.enqueue("exact", { do: "error", status: 400 });
    const failed = await chat(secret, { ...body, stream });
    expect(failed.status).toBe(400);
  }
  const whole = await readStream(await chat(secret, { ...body, stream: true }));
  expect(whole.isDone).toBeTrue();
  await expectBooksClosed(gateway);
  const charges = await gateway.sql`
    SELECT -amount_nano AS nano FROM transactions WHERE key_id = ${id}`;
  expect([...charges]).toEqual([{ nano: BigInt(EXACT_TOKENS) * TOKEN_CHARGE_NANO }]);
});
