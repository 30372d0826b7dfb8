import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

/** Longer than any replay takes. */
const SLOW_MS = 1_000;
const header = (key: string) => ({ headers: { "idempotency-key": key } });
const callsOf = (slug: string) => gateway.upstream.servedOf(slug).length;
const isReplay = (response: Response) =>
  response.headers.get("x-gateway-idempotent-replay") === "true";
const idOf = (response: Response) => response.headers.get("x-gateway-request-id")!;

/** Requests of that model that were charged. */
async function chargesOf(slug: string): Promise<number> {
  const rows = await gateway.sql`SELECT 1 FROM transactions WHERE model = ${`test/${slug}`}`;
  return rows.length;
}

describe("the same call under the same key", () => {
  const WAYS: [name: string, (key: string) => [Record<string, unknown>, RequestInit]][] = [
    ["as header", (key) => [{}, header(key)]],
    ["as metadata", (key) => [{ metadata: { idempotency_key: key } }, {}]],
    ["as both", (key) => [{ metadata: { idempotency_key: key } }, header(key)]],
  ];
  test.each(WAYS)("%s: has the same result, one upstream call and one charge", async (_, way) => {
    const slug = gateway.modelThat({ do: "complete", content: "first" });
    const [body, init] = way(crypto.randomUUID());
    const first = await gateway.chat(slug, body, init);
    expect(isReplay(first)).toBeFalse();
    const text = await first.text();
    gateway.upstream.behave(slug, { do: "complete", content: "second" });
    for (let i = 0; i < 3; i++) {
      const again = await gateway.chat(slug, body, init);
      expect(again.status).toBe(200);
      expect(isReplay(again)).toBeTrue();
      expect(await again.text()).toBe(text);
      expect(again.headers.get("content-type")).toBe(first.headers.get("content-type"));
      for (const name of ["x-gateway-cost", "x-gateway-model", "x-gateway-provider"]) {
        expect(again.headers.get(name)).toBe(first.headers.get(name));
      }
      expect(idOf(again)).not.toBe(idOf(first));
      expect(await billOf(gateway, idOf(again))).toBeUndefined();
    }
    expect(callsOf(slug)).toBe(1);
    expect(await chargesOf(slug)).toBe(1);
  });

  test.each([[{}], [{ stream: true }]])("%j: a replay tells its own latency", async (body) => {
    const slug = gateway.modelThat({ do: "complete", firstDelayMs: SLOW_MS });
    const key = crypto.randomUUID();
    const latencyOf = async () => {
      const response = await gateway.chat(slug, body, header(key));
      await response.text();
      return Number(response.headers.get("x-gateway-latency-ms") ?? Number.NaN);
    };
    expect(await latencyOf()).toBeGreaterThanOrEqual(SLOW_MS - 1);
    expect(await latencyOf()).toBeLessThan(SLOW_MS);
  });

  test("of another API key is another call", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const key = crypto.randomUUID();
    await gateway.chat(slug, {}, header(key));
    const other = await gateway.chat(
      slug,
      {},
      { ...header(key), key: await addSecretKey(gateway) },
    );
    expect(isReplay(other)).toBeFalse();
    expect(callsOf(slug)).toBe(2);
  });

  test("is replayed to a key whose budget is spent: it costs nothing", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const init = {
      ...header("once"),
      key: await addSecretKey(gateway, { dailyBudgetNano: 6_000n }),
    };
    expect((await gateway.chat(slug, { max_tokens: 3 }, init)).status).toBe(200);
    await expectError(
      await gateway.chat(slug, { max_tokens: 9 }, { key: init.key }),
      402,
      "budget_exhausted",
    );
    const again = await gateway.chat(slug, { max_tokens: 3 }, init);
    expect([again.status, isReplay(again)]).toEqual([200, true]);
  });

  test("counts against the rate limit, which is checked before the idempotency key", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const init = { ...header("rated"), key: await addSecretKey(gateway, { rateLimitRpm: 2 }) };
    const first = await gateway.chat(slug, {}, init);
    expect(first.headers.get("x-ratelimit-remaining")).toBe("1");
    const again = await gateway.chat(slug, {}, init);
    expect([isReplay(again), again.headers.get("x-ratelimit-remaining")]).toEqual([true, "0"]);
    await expectError(await gateway.chat(slug, {}, init), 429, "rate_limit_exceeded");
  });

  test("after 24 hours is a call of its own", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const key = crypto.randomUUID();
    await gateway.chat(slug, {}, header(key));
    await gateway.sql`UPDATE idempotency_records
      SET created_at = created_at - interval '24 hours 1 second' WHERE idempotency_key = ${key}`;
    const later = await gateway.chat(slug, { temperature: 1 }, header(key));
    expect([later.status, isReplay(later), callsOf(slug)]).toEqual([200, false, 2]);
    expect(isReplay(await gateway.chat(slug, { temperature: 1 }, header(key)))).toBeTrue();
  });

  test("is kept encrypted", async () => {
    const slug = gateway.modelThat({ do: "complete", content: "the secret answer" });
    const key = crypto.randomUUID();
    await gateway.chat(slug, {}, header(key));
    const [row] = await gateway.sql`
      SELECT body FROM idempotency_records WHERE idempotency_key = ${key}`;
    const kept = Buffer.from(row!.body).toString("latin1");
    expect(kept.length).toBeGreaterThan(100);
    expect(kept).not.toContain("secret answer");
    expect(kept).not.toContain("choices");
  });
});

describe("while the first call is running", () => {
  test("others wait for it and have its result", async () => {
    const slug = gateway.modelThat({ do: "complete", firstDelayMs: 200 });
    const key = crypto.randomUUID();
    const responses = await Promise.all(
      Array.from({ length: 6 }, () => gateway.chat(slug, {}, header(key))),
    );
    const texts = await Promise.all(responses.map((response) => response.text()));
    expect(new Set(texts).size).toBe(1);
    expect(responses.filter(isReplay)).toHaveLength(5);
    expect(callsOf(slug)).toBe(1);
    expect(await chargesOf(slug)).toBe(1);
  });

  test("a different call under its key is refused at once", async () => {
    const slug = gateway.modelThat({ do: "complete", firstDelayMs: 300 });
    const key = crypto.randomUUID();
    const first = gateway.chat(slug, {}, header(key));
    await gateway.upstream.until((list) => list.some(({ model }) => model === slug));
    const response = await gateway.chat(slug, { temperature: 1 }, header(key));
    await expectError(response, 409, "idempotency_conflict");
    expect((await first).status).toBe(200);
  });

  test("one that waits takes its place where it fails", async () => {
    const slug = gateway.modelThat(
      { do: "error", status: 400, firstDelayMs: 200 },
      { do: "complete", content: "second try" },
    );
    const key = crypto.randomUUID();
    const first = gateway.chat(slug, {}, header(key));
    await gateway.upstream.until((list) => list.some(({ model }) => model === slug));
    const second = await gateway.chat(slug, {}, header(key));
    await expectError(await first, 400, "provider_rejected");
    expect([second.status, isReplay(second)]).toEqual([200, false]);
    expect(await second.text()).toContain("second try");
    expect(isReplay(await gateway.chat(slug, {}, header(key)))).toBeTrue();
  });
});

test("a different body under the same key is 409, which no client should send again", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const key = crypto.randomUUID();
  await gateway.chat(slug, {}, header(key));
  for (const body of [
    { temperature: 1 },
    { stream: true },
    { messages: [{ role: "user", content: "b" }] },
  ]) {
    const response = await gateway.chat(slug, body, header(key));
    const { error } = await expectError(response, 409, "idempotency_conflict");
    expect(error.type).toBe("invalid_request_error");
    expect(response.headers.get("x-should-retry")).toBe("false");
  }
  expect(callsOf(slug)).toBe(1);
});

describe("a key that cannot be one is 400", () => {
  const BAD: [name: string, metadata: unknown, headerKey: string | null][] = [
    ["header and metadata that differ", "a", "b"],
    ["an empty metadata key", "", null],
    ["one of 256 characters", "x".repeat(256), null],
    ["a number", 5, null],
    ["a list", ["a"], null],
    ["an object", {}, null],
  ];
  test.each(BAD)("%s", async (_, idempotencyKey, headerKey) => {
    const slug = gateway.modelThat({ do: "complete" });
    const init = headerKey === null ? {} : header(headerKey);
    const response = await gateway.chat(
      slug,
      { metadata: { idempotency_key: idempotencyKey } },
      init,
    );
    const { error } = await expectError(response, 400, "invalid_body");
    expect(error.param).toBe("metadata.idempotency_key");
    expect(callsOf(slug)).toBe(0);
  });

  test.each(["x".repeat(256), ""])("the header %j, which the error names", async (key) => {
    const response = await gateway.chat("any", { model: "none" }, header(key));
    const { error } = await expectError(response, 400, "invalid_body");
    expect(error.param).toBe("Idempotency-Key");
  });

  test("null in metadata is none", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    const body = { metadata: { idempotency_key: null } };
    for (let i = 0; i < 2; i++) expect(isReplay(await gateway.chat(slug, body))).toBeFalse();
    expect(callsOf(slug)).toBe(2);
  });
});

describe("the key is free again", () => {
  test("after an error, of the provider or of the gateway", async () => {
    const key = crypto.randomUUID();
    const slug = gateway.modelThat(
      { do: "error", status: 400 },
      { do: "error", status: 404 },
      { do: "complete" },
    );
    const statuses = [];
    for (let i = 0; i < 4; i++) statuses.push((await gateway.chat(slug, {}, header(key))).status);
    expect(statuses).toEqual([400, 502, 200, 200]);
    const poor = { ...header(key), key: await addSecretKey(gateway, { dailyBudgetNano: 0n }) };
    for (const body of [{}, { temperature: 1 }]) {
      await expectError(await gateway.chat(slug, body, poor), 402, "budget_exhausted");
    }
  });

  test("after a disconnect", async () => {
    const slug = gateway.modelThat({ do: "stall" }, { do: "complete", content: "later" });
    const key = crypto.randomUUID();
    const abort = new AbortController();
    const gone = gateway.chat(slug, {}, { ...header(key), signal: abort.signal });
    await gateway.upstream.until((list) => list.some(({ model }) => model === slug));
    abort.abort();
    await expect(gone).rejects.toThrow();
    await until("the key is free", async () => {
      const rows =
        await gateway.sql`SELECT 1 FROM idempotency_records WHERE idempotency_key = ${key}`;
      return rows.length === 0;
    });
    await gateway.upstream.until((list) => list.find(({ model }) => model === slug)!.aborted);
    const later = await gateway.chat(slug, { temperature: 1 }, header(key));
    expect(await later.text()).toContain("later");
  });
});

test("a result too large to be kept is not made again: 409", async () => {
  const slug = gateway.modelThat({ do: "huge-event", contentBytes: 1_100_000 });
  const key = crypto.randomUUID();
  expect((await gateway.chat(slug, {}, header(key))).status).toBe(200);
  await expectError(await gateway.chat(slug, {}, header(key)), 409, "idempotency_conflict");
  expect(callsOf(slug)).toBe(1);
});
