import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { flood } from "../money/money-flood.ts";
import { EXACT_TOKENS, type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { seededRandom } from "../upstream/random.ts";

const WINDOW_MS = 60_000;
/** Admissions are counted in steps of this length, so a limit may open so much later, never earlier. */
const STEP_MS = 100;
/** No client has an answer and asks again at the same time. */
const ON_THE_WAY_MS = 1;
const SCHEDULED_REQUESTS = 400;

const clock = new VirtualClock();
let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway({ clock });
});
afterAll(() => gateway.stop());

/** Sends one request and reads its answer to the end. */
async function statusOf(key: string, body?: Record<string, unknown>): Promise<number> {
  const response = await gateway.chat(key, body);
  await response.text();
  return response.status;
}

const limitHeaders = ({ headers }: Response) =>
  ["limit", "remaining", "reset"].map((name) => headers.get(`x-ratelimit-${name}`));

test("a key without a limit is told none", async () => {
  const response = await gateway.chat(gateway.secretKey);
  expect(response.status).toBe(200);
  expect(limitHeaders(response)).toEqual([null, null, null]);
});

test("each answer, streamed or not, tells the limit, what is left of it, and when its window ends", async () => {
  const { secret } = await gateway.addKey({ rate_limit_rpm: 3 });
  const resets: number[] = [];
  for (const [remaining, stream] of [
    ["2", false],
    ["1", true],
    ["0", false],
  ] as const) {
    const response = await gateway.chat(secret, { stream });
    expect(response.status).toBe(200);
    await response.text();
    const [limit, left, reset] = limitHeaders(response);
    expect([limit, left]).toEqual(["3", remaining]);
    expect(reset).toMatch(/^\d+$/);
    // As OpenAI names them.
    const { headers } = response;
    expect(headers.get("x-ratelimit-limit-requests")).toBe("3");
    expect(headers.get("x-ratelimit-remaining-requests")).toBe(remaining);
    const resetsIn = /^(\d{1,2}(?:\.\d)?)s$/.exec(headers.get("x-ratelimit-reset-requests")!)?.[1];
    expect(Number(resetsIn)).toBeWithin(59, 61);
    expect(headers.get("openai-processing-ms")).toMatch(/^\d+$/);
    resets.push(Number(reset));
  }
  const nowSeconds = clock.nowMs() / 1_000;
  for (const reset of resets) expect(reset - nowSeconds).toBeWithin(59, 62);
});

test("a refusal is 429 with the time to wait, waiting it helps, and a moment less does not", async () => {
  const { secret } = await gateway.addKey({ rate_limit_rpm: 2 });
  expect(await statusOf(secret)).toBe(200);
  clock.advance(20_000);
  expect(await statusOf(secret)).toBe(200);
  const refused = await gateway.chat(secret);
  await expectError(refused, 429, "rate_limit_exceeded");
  expect(limitHeaders(refused).slice(0, 2)).toEqual(["2", "0"]);
  const retryAfter = refused.headers.get("retry-after")!;
  expect(retryAfter).toMatch(/^[1-9]\d*$/);
  expect(Number(retryAfter)).toBeWithin(40, 42);
  clock.advance(40_000 - 2 * STEP_MS);
  expect(await statusOf(secret)).toBe(429);
  clock.advance(Number(retryAfter) * 1_000 - 40_000 + 2 * STEP_MS + ON_THE_WAY_MS);
  expect(await statusOf(secret)).toBe(200);
  expect(await statusOf(secret)).toBe(429);
});

test("of many requests at once exactly as many are admitted as the limit says", async () => {
  const { secret } = await gateway.addKey({ rate_limit_rpm: 50 });
  const outcomes = await flood(gateway, {
    key: secret,
    body: { model: "test/exact", max_tokens: EXACT_TOKENS },
    requests: 300,
  });
  expect(outcomes.filter(({ code }) => code === undefined)).toHaveLength(50);
  const refused = outcomes.filter(({ status }) => status === 429);
  expect(refused).toHaveLength(250);
  for (const { headers } of refused) expect(Number(headers.get("retry-after"))).toBeWithin(1, 61);
});

test("no window of 60 s holds more admissions than the limit, at whatever pace requests come", async () => {
  const limit = 7;
  const { secret } = await gateway.addKey({ rate_limit_rpm: limit });
  const random = seededRandom(20_260_101);
  const admittedAtMs: number[] = [];
  for (let i = 0; i < SCHEDULED_REQUESTS; i++) {
    // Bursts, a steady pace, and gaps about as long as the window.
    const pace = random();
    clock.advance(Math.floor(random() * (pace < 0.5 ? 50 : pace < 0.9 ? 9_000 : 61_000)));
    const nowMs = clock.nowMs();
    const status = await statusOf(secret);
    const inWindow = admittedAtMs.filter((atMs) => atMs > nowMs - WINDOW_MS).length;
    if (status === 200) admittedAtMs.push(nowMs);
    else expect(status).toBe(429);
    if (inWindow >= limit) expect(status).toBe(429);
    const nearby = admittedAtMs.filter((atMs) => atMs > nowMs - WINDOW_MS - 2 * STEP_MS).length;
    if (nearby < limit) expect(status).toBe(200);
  }
  expect(admittedAtMs.length).toBeGreaterThan(SCHEDULED_REQUESTS / 4);
});

test("keys do not share a limit, and a new limit holds for the very next request", async () => {
  const [one, other] = [
    await gateway.addKey({ rate_limit_rpm: 1 }),
    await gateway.addKey({ rate_limit_rpm: 1 }),
  ];
  const change = async (rateLimitRpm: number | null) => {
    const body = { rate_limit_rpm: rateLimitRpm };
    const init = { key: gateway.managementKey };
    const changed = await gateway.request("PATCH", `/v1/keys/${one.id}`, body, init);
    expect(changed.status).toBe(200);
  };
  expect([await statusOf(one.secret), await statusOf(other.secret)]).toEqual([200, 200]);
  expect([await statusOf(one.secret), await statusOf(other.secret)]).toEqual([429, 429]);
  await change(2);
  expect([await statusOf(one.secret), await statusOf(one.secret)]).toEqual([200, 429]);
  await change(null);
  expect([await statusOf(one.secret), await statusOf(one.secret)]).toEqual([200, 200]);
});

describe("what a refusal costs", () => {
  test("a request refused for its rate leaves the budget and the upstream untouched", async () => {
    const key = await gateway.addKey({ rate_limit_rpm: 1, daily_budget_usd: 1 });
    expect(await statusOf(key.secret)).toBe(200);
    const servedBefore = gateway.upstream.served.length;
    for (const stream of [false, true]) expect(await statusOf(key.secret, { stream })).toBe(429);
    expect(gateway.upstream.served).toHaveLength(servedBefore);
    await expectBooksClosed(gateway);
    const charges = await gateway.sql`SELECT id FROM transactions WHERE key_id = ${key.id}`;
    expect(charges).toHaveLength(1);
  });

  test("a key whose budget is spent as well is told of its rate first", async () => {
    const { secret } = await gateway.addKey({ rate_limit_rpm: 1, daily_budget_usd: 0 });
    const poor = await gateway.chat(secret);
    await expectError(poor, 402, "budget_exhausted");
    expect(limitHeaders(poor).slice(0, 2)).toEqual(["1", "0"]);
    await expectError(await gateway.chat(secret), 429, "rate_limit_exceeded");
  });

  test("what is refused before the limit is asked takes nothing of it", async () => {
    const { secret } = await gateway.addKey({
      rate_limit_rpm: 1,
      allowed_models: ["test/exact"],
    });
    expect(await statusOf(secret, { messages: "none" })).toBe(400);
    expect(await statusOf(secret, { model: "test/unknown" })).toBe(404);
    expect(await statusOf(secret, { model: "test/roomy" })).toBe(403);
    const scopeless = await addSecretKey(gateway, { rateLimitRpm: 1, scopes: ["files:read"] });
    expect(await statusOf(scopeless)).toBe(403);
    expect(await statusOf(secret)).toBe(200);
    expect(await statusOf(secret)).toBe(429);
  });
});
