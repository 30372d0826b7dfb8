import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../../support/chat-gateway.ts";
import { expectBooksClosed } from "../../support/ledger-checks.ts";
import { refuseRows } from "../../support/unwilling-table.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const ON = { "x-gateway-cache": "on" };

async function ask(slug: string, body = {}, headers: Record<string, string> = ON) {
  const response = await gateway.chat(slug, body, { headers });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return response.headers.get("x-gateway-cache");
}

describe("where the cache fails, requests are misses", () => {
  test.each([
    ["cached_answers", {}],
    ["cached_answers", { stream: true }],
    ["answer_caches", {}],
    ["answer_flights", {}],
  ])("that cannot write %s: %j", async (table, body) => {
    const slug = gateway.modelThat({ do: "complete" });
    const together = { ...ON, "x-gateway-cache-single-flight": "on" };
    const unwilling = await refuseRows(gateway.sql, table, "53100");
    const headers = table === "answer_flights" ? together : ON;
    expect(await ask(slug, body, headers)).toBe("miss");
    expect(await unwilling.refusals()).toBeGreaterThan(0);
    await unwilling.relent();
    if (table !== "answer_flights") expect(await ask(slug, body, headers)).toBe("miss");
    expect(await ask(slug, body, headers)).toBe("hit");
  });

  test("that cannot be read", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    await ask(slug);
    await gateway.sql`ALTER TABLE cached_answers RENAME TO lost_answers`;
    expect(await ask(slug)).toBe("miss");
    expect(
      await ask(slug, { stream: true }, { ...ON, "x-gateway-cache-single-flight": "on" }),
    ).toBe("miss");
    await gateway.sql`ALTER TABLE lost_answers RENAME TO cached_answers`;
    expect(await ask(slug)).toBe("hit");
  });

  test("that does not answer, after a moment", async () => {
    const slug = gateway.modelThat({ do: "complete" });
    await ask(slug);
    await gateway.sql.begin(async (transaction) => {
      await transaction`LOCK TABLE cached_answers IN ACCESS EXCLUSIVE MODE`;
      expect(await ask(slug)).toBe("miss");
    });
    expect(gateway.upstream.servedOf(slug).length).toBe(2);
  });
});

test("hits and misses at once never spend more than the budget, and no hit is refused", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  await ask(slug);
  const [{ cost } = { cost: 0n }] = await gateway.sql<{ cost: bigint }[]>`
    SELECT -amount_nano AS cost FROM transactions WHERE model = ${`test/${slug}`}`;
  const budget = 4_000_000n;
  const key = await addSecretKey(gateway, { dailyBudgetNano: budget });
  const asked = Array.from({ length: 120 }, async (_, n) => {
    const body = n % 2 === 0 ? {} : { seed: n, max_tokens: 2_000 };
    const response = await gateway.chat(slug, body, { headers: ON, key });
    await response.text();
    return { isHit: n % 2 === 0, status: response.status };
  });
  const outcomes = await Promise.all(asked);
  expect(outcomes.filter(({ isHit, status }) => isHit && status !== 200)).toEqual([]);
  for (const { status } of outcomes) expect([200, 402]).toContain(status);
  const [spent] = await gateway.sql<{ nano: bigint; paid: number }[]>`
    SELECT coalesce(-sum(t.amount_nano), 0)::bigint AS nano,
      count(*) FILTER (WHERE t.amount_nano <> 0)::int AS paid
    FROM transactions t WHERE t.key_id = (SELECT id FROM api_keys ORDER BY created_at DESC LIMIT 1)`;
  expect(spent!.paid).toBeGreaterThan(0);
  expect(spent!.nano).toBe(BigInt(spent!.paid) * cost);
  expect(spent!.nano).toBeLessThanOrEqual(budget);
});

test("a hit says again what its provider was not sent", async () => {
  const dropping = await startChatGateway({ primaryType: "groq" });
  try {
    const slug = dropping.modelThat({ do: "complete" });
    const outcomes = [];
    for (let call = 0; call < 2; call++) {
      const response = await dropping.chat(slug, { top_k: 3 }, { headers: ON });
      await response.text();
      expect(response.headers.get("x-gateway-dropped-parameters")).toBe("top_k");
      outcomes.push(response.headers.get("x-gateway-cache"));
    }
    expect(outcomes).toEqual(["miss", "hit"]);
  } finally {
    await dropping.stop();
  }
});

test("the log tells hits from misses, and the metrics count them", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const counts = async () => {
    const text = await gateway.telemetry.metrics();
    return ["hits", "misses"].map((name) =>
      Number(new RegExp(`^gateway_cache_${name}_total (\\d+)`, "m").exec(text)![1]),
    );
  };
  const [hits, misses] = await counts();
  await ask(slug);
  await ask(slug);
  await ask(slug, {}, {});
  expect(await counts()).toEqual([hits! + 1, misses! + 1]);
  const lines = gateway.logLines.map((line) => JSON.parse(line) as Record<string, unknown>);
  const ofModel = lines.filter(({ model }) => model === `test/${slug}`);
  expect(ofModel.map(({ cache }) => cache)).toEqual(["miss", "hit", undefined]);
  expect(JSON.stringify(ofModel)).not.toContain("hello");
});
