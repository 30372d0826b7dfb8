import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { VirtualClock } from "../../src/lib/clock.ts";
import { flood } from "../money/money-flood.ts";
import { EXACT_TOKENS, type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";

/** Of the prompt "hi": two bytes, and what templates put around it. */
const PROMPT_BOUND = 26;
const BOUND = PROMPT_BOUND + EXACT_TOKENS;
const LIMIT = 1_000;

const clock = new VirtualClock();
let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway({ clock });
});
afterAll(() => gateway.stop());

const limited = (settings: Record<string, unknown> = {}) =>
  gateway.addKey({ rate_limit_tpm: LIMIT, ...settings });

async function remaining(key: string): Promise<number | null> {
  const response = await gateway.request("GET", "/v1/key", undefined, { key });
  return ((await response.json()) as { remaining_tpm: number | null }).remaining_tpm;
}

const tokenHeaders = ({ headers }: Response) =>
  ["limit", "remaining", "reset"].map((name) => headers.get(`x-ratelimit-${name}-tokens`));

async function usedBy(response: Response): Promise<number> {
  expect(response.status).toBe(200);
  const { usage } = (await response.json()) as { usage: { total_tokens: number } };
  expect(usage.total_tokens).toBeWithin(EXACT_TOKENS + 1, BOUND);
  return usage.total_tokens;
}

/** Asks a model that falls silent; resolves when its tokens are counted. */
async function running(key: string, maxTokens: number, body: Record<string, unknown> = {}) {
  const before = (await remaining(key))!;
  const abort = new AbortController();
  const ended = fetch(`${gateway.baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "test/silent",
      max_tokens: maxTokens,
      messages: [{ role: "user", content: "hi" }],
      ...body,
    }),
    signal: abort.signal,
  }).catch(() => undefined);
  await until("the call to be counted", async () => (await remaining(key))! < before);
  return async () => {
    abort.abort();
    await ended;
  };
}

test("a key without the limit gets no header, and nothing of it is left", async () => {
  const response = await gateway.chat(gateway.secretKey);
  await response.text();
  expect(tokenHeaders(response)).toEqual([null, null, null]);
  expect(await remaining(gateway.secretKey)).toBeNull();
});

test("an answer tells the window as its call was admitted, and leaves in it what was used", async () => {
  const { secret } = await limited();
  const response = await gateway.chat(secret);
  const [limit, left, reset] = tokenHeaders(response);
  expect([limit, left]).toEqual([String(LIMIT), String(LIMIT - BOUND)]);
  expect(reset).toMatch(/^(60|60\.1)s$/);
  const used = await usedBy(response);
  expect(await remaining(secret)).toBe(LIMIT - used);
  clock.advance(60_101);
  expect(await remaining(secret)).toBe(LIMIT);
});

test("a stream leaves what it has used, and so does one that its client leaves", async () => {
  const { id, secret } = await limited();
  const charged = async () => {
    const [row] = await gateway.sql<{ count: number; tokens: number }[]>`
      SELECT count(*)::int AS count, sum(prompt_tokens + completion_tokens)::int AS tokens
      FROM transactions WHERE key_id = ${id}`;
    return row!;
  };
  await (await gateway.chat(secret, { stream: true })).text();
  const whole = await charged();
  expect(whole).toEqual({ count: 1, tokens: expect.any(Number) });
  expect(whole.tokens).toBeWithin(EXACT_TOKENS, BOUND);
  expect(await remaining(secret)).toBe(LIMIT - whole.tokens);
  gateway.upstream.enqueue("brief", {
    do: "stall-after-events",
    afterEvents: 2,
    content: "word word word word",
  });
  const left = await gateway.chat(secret, { model: "test/brief", max_tokens: 300, stream: true });
  const reader = left.body!.getReader();
  await reader.read();
  expect(await remaining(secret)).toBe(LIMIT - whole.tokens - PROMPT_BOUND - 300);
  await reader.cancel();
  await until("its charge", async () => (await charged()).count === 2);
  expect(await remaining(secret)).toBe(LIMIT - (await charged()).tokens);
});

test("a running call counts for the most that it can use, and one that fails gives all of it back", async () => {
  const { secret } = await limited();
  const end = await running(secret, 900);
  expect(await remaining(secret)).toBe(LIMIT - PROMPT_BOUND - 900);
  const refused = await gateway.chat(secret, { max_tokens: 49 });
  await expectError(refused, 429, "rate_limit_exceeded");
  expect(tokenHeaders(refused).slice(0, 2)).toEqual([String(LIMIT), "74"]);
  expect(Number(refused.headers.get("retry-after"))).toBeWithin(59, 62);
  const used = await usedBy(await gateway.chat(secret, { max_tokens: 48 }));
  await end();
  await until("its end", async () => (await remaining(secret)) === LIMIT - used);
  for (const stream of [false, true]) {
    gateway.upstream.enqueue("brief", { do: "error", status: 400 });
    const failed = await gateway.chat(secret, { model: "test/brief", stream });
    expect(failed.status).toBe(400);
    expect(tokenHeaders(failed)[0]).toBe(String(LIMIT));
    expect(await remaining(secret)).toBe(LIMIT - used);
  }
});

test("who waits for Retry-After is admitted, and a moment earlier is not", async () => {
  const { secret } = await limited({ rate_limit_tpm: BOUND + 20 });
  await usedBy(await gateway.chat(secret));
  clock.advance(20_000);
  const used = await usedBy(await gateway.chat(secret, { max_tokens: 11 }));
  const refused = await gateway.chat(secret, { max_tokens: BOUND + 20 - PROMPT_BOUND - used });
  const seconds = Number(refused.headers.get("retry-after"));
  await expectError(refused, 429, "rate_limit_exceeded");
  expect(seconds).toBeWithin(40, 42);
  clock.advance(39_800);
  const body = { max_tokens: BOUND + 20 - PROMPT_BOUND - used };
  await expectError(await gateway.chat(secret, body), 429, "rate_limit_exceeded");
  clock.advance(seconds * 1_000 - 39_800 + 1);
  expect((await gateway.chat(secret, body)).status).toBe(200);
});

test("a request that can never fit is 400, which says the limit of output that does", async () => {
  const { secret } = await limited({ rate_limit_tpm: 500 });
  const refused = await gateway.chat(secret, { max_tokens: 475 });
  const { error } = await expectError(refused, 400, "request_exceeds_rate_limit");
  expect(error.param).toBe("max_tokens");
  expect(error.message).toContain("at most 474");
  expect((await gateway.chat(secret, { max_tokens: 474 })).status).toBe(200);
  const long = { messages: [{ role: "user", content: "x".repeat(480) }], max_tokens: 1 };
  const tooLong = await gateway.chat(secret, long);
  await expectError(tooLong, 400, "request_exceeds_rate_limit");
});

test("without max_tokens the limit of output is lowered to what is left, and told", async () => {
  const { secret } = await limited({ rate_limit_tpm: 10_000 });
  const body = { model: "test/roomy", max_tokens: undefined };
  const served = () => gateway.upstream.served.at(-1)!.requestBody as { max_tokens?: number };
  const first = await gateway.chat(secret, body);
  expect(first.headers.get("x-gateway-max-tokens")).toBe("4096");
  expect(served().max_tokens).toBe(4_096);
  const { usage } = (await first.json()) as { usage: { total_tokens: number } };
  const left = 10_000 - usage.total_tokens - PROMPT_BOUND;
  const end = await running(secret, left - PROMPT_BOUND - 300);
  const second = await gateway.chat(secret, body);
  expect(second.headers.get("x-gateway-max-tokens")).toBe("300");
  expect(served().max_tokens).toBe(300);
  await second.text();
  await end();
});

test("a lowered hold counts lowered", async () => {
  // 1,000 output tokens' worth: the hold is lowered to that, the tokens of the key would do for more.
  const { secret } = await limited({ rate_limit_tpm: 50_000, daily_budget_usd: 0.00104 });
  const end = await running(secret, 0, { max_tokens: undefined });
  expect(await remaining(secret)).toBe(50_000 - PROMPT_BOUND - 1_000);
  await end();
});

test("a key whose budget is spent as well gets 429 before 402, and refusals charge nothing", async () => {
  const key = await limited({ daily_budget_usd: 0 });
  await expectError(await gateway.chat(key.secret), 402, "budget_exhausted");
  expect(await remaining(key.secret)).toBe(LIMIT);
  const poor = await limited({ rate_limit_tpm: BOUND, daily_budget_usd: 0.00001041 });
  const used = await usedBy(await gateway.chat(poor.secret));
  expect(used).toBeGreaterThan(0);
  await expectError(await gateway.chat(poor.secret), 429, "rate_limit_exceeded");
  await expectBooksClosed(gateway);
});

test("a change of the limit holds for the next request, and null takes it away", async () => {
  const { id, secret } = await limited({ rate_limit_tpm: BOUND });
  const change = async (limit: number | null) => {
    const init = { key: gateway.managementKey };
    const body = { rate_limit_tpm: limit };
    expect((await gateway.request("PATCH", `/v1/keys/${id}`, body, init)).status).toBe(200);
  };
  await usedBy(await gateway.chat(secret));
  expect((await gateway.chat(secret)).status).toBe(429);
  await change(2 * BOUND);
  expect((await gateway.chat(secret)).status).toBe(200);
  await change(null);
  expect((await gateway.chat(secret)).status).toBe(200);
  expect(await remaining(secret)).toBeNull();
});

test("embeddings, messages and responses count too, and a hit of the response cache does not", async () => {
  const { secret } = await limited();
  let left = LIMIT;
  const ask = async (path: string, body: object, headers?: Record<string, string>) => {
    const response = await gateway.request("POST", path, body, { key: secret, headers });
    expect(response.status).toBe(200);
    await response.text();
    return response;
  };
  const messages = [{ role: "user", content: "hi" }];
  for (const [path, body] of [
    ["/v1/embeddings", { model: "sandbox/embed", input: "hello there" }],
    ["/v1/messages", { model: "sandbox/chat", max_tokens: 20, messages }],
    ["/v1/responses", { model: "sandbox/chat", max_output_tokens: 20, input: "hi" }],
  ] as const) {
    await ask(path, body);
    const now = (await remaining(secret))!;
    expect(now).toBeLessThan(left);
    left = now;
  }
  const cached = { model: "test/exact", max_tokens: EXACT_TOKENS, messages };
  const on = { "x-gateway-cache": "on" };
  await ask("/v1/chat/completions", cached, on);
  left = (await remaining(secret))!;
  const hit = await ask("/v1/chat/completions", cached, on);
  expect(hit.headers.get("x-gateway-cache")).toBe("hit");
  expect(await remaining(secret)).toBe(left);
});

test("a long body is not read of a key without tokens left", async () => {
  const { secret } = await limited({ rate_limit_tpm: BOUND });
  const end = await running(secret, EXACT_TOKENS);
  const messages = [{ role: "user", content: "x".repeat(70_000) }];
  const refused = await gateway.chat(secret, { messages });
  await expectError(refused, 429, "rate_limit_exceeded");
  await end();
});

describe("of many requests at once", () => {
  test("as many are admitted as the limit covers, and their use is what counts then", async () => {
    const { secret } = await limited({ rate_limit_tpm: 40 * BOUND });
    const body = { model: "test/exact", max_tokens: EXACT_TOKENS };
    const outcomes = await flood(gateway, { key: secret, body, requests: 300 });
    const admitted = outcomes.filter(({ code }) => code === undefined).length;
    const left = (await remaining(secret))!;
    const used = (40 * BOUND - left) / admitted;
    expect(Number.isInteger(used)).toBe(true);
    expect(used).toBeWithin(EXACT_TOKENS + 1, BOUND);
    expect(admitted).toBeGreaterThanOrEqual(40);
    expect(admitted * used).toBeLessThanOrEqual(40 * BOUND);
    const refused = outcomes.filter(({ status }) => status === 429);
    expect(refused).toHaveLength(300 - admitted);
  });
});

test("the official SDK reads the headers, and does not repeat what can never fit", async () => {
  const { secret } = await limited();
  let sent = 0;
  const openai = new OpenAI({
    apiKey: secret,
    baseURL: `${gateway.baseUrl}/v1`,
    fetch: (url, init) => {
      sent++;
      return fetch(url as string, init as RequestInit);
    },
  });
  const messages = [{ role: "user" as const, content: "hi" }];
  const { response } = await openai.chat.completions
    .create({ model: "test/exact", max_tokens: EXACT_TOKENS, messages })
    .withResponse();
  expect(response.headers.get("x-ratelimit-remaining-tokens")).toBe(String(LIMIT - BOUND));
  const never = await openai.chat.completions
    .create({ model: "test/exact", max_tokens: LIMIT, messages })
    .catch((error: unknown) => error);
  expect(never).toBeInstanceOf(OpenAI.BadRequestError);
  expect(sent).toBe(2);
});
