import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { removeExpiredAnswers } from "../../../db/queries/response-cache.ts";
import { type ChatGateway, startChatGateway } from "../../support/chat-gateway.ts";
import { expectBooksClosed } from "../../support/ledger-checks.ts";

/** Runs with the real one, and ahead of it by what a test adds. */
class AheadClock {
  aheadMs = 0;

  nowMs(): number {
    return Date.now() + this.aheadMs;
  }

  after(delayMs: number, run: () => void): () => void {
    const timer = setTimeout(run, delayMs);
    return () => clearTimeout(timer);
  }
}

const MAX_ENTRIES = 10;
const clock = new AheadClock();
let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({
    clock,
    environment: {
      GATEWAY_CACHE_MAX_ENTRIES: String(MAX_ENTRIES),
      GATEWAY_CACHE_MAX_BYTES: "20000",
    },
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

async function ask(slug: string, body: Record<string, unknown> = {}, ttl = "3600") {
  const headers = { "x-gateway-cache": "on", "x-gateway-cache-ttl": ttl };
  const response = await gateway.chat(slug, body, { headers });
  await response.text();
  return response.headers.get("x-gateway-cache");
}

const entries = async () => {
  const [row] =
    await gateway.sql`SELECT count(*)::int AS entries, coalesce(sum(bytes), 0)::int AS bytes
    FROM cached_answers`;
  return row as unknown as { entries: number; bytes: number };
};

test("an answer is given until its lifetime has passed, and not after", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  for (const [ttl, seconds] of [
    ["1", 1],
    ["60", 60],
    ["86400", 86_400],
  ] as const) {
    expect(await ask(slug, { seed: seconds }, ttl)).toBe("miss");
    clock.aheadMs += (seconds - 1) * 1_000;
    if (seconds > 1) expect(await ask(slug, { seed: seconds }, ttl)).toBe("hit");
    clock.aheadMs += 1_000;
    expect(await ask(slug, { seed: seconds }, ttl)).toBe("miss");
  }
});

test("a full cache loses what was not used for longest, by number and by bytes", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  await gateway.request("DELETE", "/v1/cache", undefined, { key: gateway.managementKey });
  for (let seed = 0; seed < MAX_ENTRIES; seed++) {
    await ask(slug, { seed });
    clock.aheadMs += 10;
  }
  // What came first is used again, so the next one is the oldest.
  expect(await ask(slug, { seed: 0 })).toBe("hit");
  clock.aheadMs += 10;
  expect(await ask(slug, { seed: 100 })).toBe("miss");
  expect((await entries()).entries).toBe(MAX_ENTRIES - 1);
  expect(await ask(slug, { seed: 0 })).toBe("hit");
  expect(await ask(slug, { seed: 100 })).toBe("hit");
  clock.aheadMs += 10;
  const long = gateway.modelThat({ do: "complete", content: "x".repeat(8_000) });
  for (let seed = 0; seed < 3; seed++) {
    await ask(long, { seed });
    clock.aheadMs += 10;
    expect((await entries()).bytes).toBeLessThanOrEqual(20_000);
  }
  expect(await ask(long, { seed: 2 })).toBe("hit");
  expect(await ask(slug, { seed: 5 })).toBe("miss");
});

test("expired answers are removed with what they count for", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  await ask(slug);
  await gateway.sql`UPDATE cached_answers SET expires_at = clock_timestamp() - interval '1 second'`;
  while (await removeExpiredAnswers(gateway.sql));
  expect((await entries()).entries).toBe(0);
  const [row] =
    await gateway.sql`SELECT sum(entries)::int AS entries, sum(bytes)::int AS bytes FROM answer_caches`;
  expect(row).toEqual({ entries: 0, bytes: 0 });
});

test("what is kept is sealed, and what no key opens is not there", async () => {
  const slug = gateway.modelThat({ do: "complete", content: "the secret of the sea" });
  await ask(slug);
  const [row] = await gateway.sql`SELECT sealed FROM cached_answers ORDER BY used_at DESC LIMIT 1`;
  expect(Buffer.from(row!.sealed).toString("latin1")).not.toContain("sea");
  expect(await ask(slug)).toBe("hit");
  await gateway.sql`UPDATE cached_answers SET sealed = set_byte(sealed, 40, 255 - get_byte(sealed, 40))`;
  expect(await ask(slug)).toBe("miss");
  expect(await ask(slug)).toBe("hit");
});
