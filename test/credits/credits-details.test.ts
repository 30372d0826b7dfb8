import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type MoneyGateway, startMoneyGateway } from "../money/money-gateway.ts";

interface Details {
  readonly status: number | null;
  readonly latency_ms: number | null;
  readonly user: string | null;
  readonly metadata: Record<string, unknown> | null;
  readonly trace: Record<string, unknown> | null;
  readonly omitted?: boolean;
}

interface Listed {
  readonly request_id: string;
  readonly details?: Details;
}

const OBJECT_BYTES = 16_000;
const PAGE_BYTES = 1_048_576;

let gateway: MoneyGateway;
beforeAll(async () => {
  gateway = await startMoneyGateway();
});
afterAll(() => gateway.stop());

async function list(query: string, key: string): Promise<Listed[]> {
  const path = `/v1/credits/transactions${query}`;
  const response = await gateway.request("GET", path, undefined, { key });
  expect(response.status).toBe(200);
  return ((await response.json()) as { data: Listed[] }).data;
}

async function charged(key: string, body: Record<string, unknown>): Promise<string> {
  const response = await gateway.chat(key, body);
  await response.text();
  expect(response.status).toBe(200);
  return response.headers.get("x-gateway-request-id")!;
}

describe("the details of a usage transaction", () => {
  test("show every kind of use that the ledger keeps, sound in seconds", async () => {
    const requestId = await charged(gateway.secretKey, {});
    const quantities = { images: 2, duration_ms: 1_500, cache_write_tokens: 7 };
    await gateway.sql`UPDATE transactions SET quantities = ${gateway.sql.json(quantities)}
      WHERE request_id = ${requestId}`;
    const [newest] = await list("?limit=1&type=usage", gateway.secretKey);
    expect(newest).toMatchObject({
      request_id: requestId,
      details: { images: 2, seconds: 1.5, cache_write_tokens: 7, cached_tokens: 0 },
    });
    expect(newest!.details).not.toHaveProperty("duration_ms");
  });

  test("are what the request recorded, its tokens, its latency and its status", async () => {
    const recorded = {
      user: 'ada "the first"',
      session_id: "session 7",
      trace: { trace_id: "t1", tags: ["a", { b: null }] },
      metadata: { tags: ["red", "blue"], team: "ä", count: 3 },
    };
    const full = await charged(gateway.secretKey, recorded);
    const streamed = await charged(gateway.secretKey, { stream: true, user: "bob" });
    const bare = await charged(gateway.secretKey, {});
    const found = await list("?limit=3&type=usage", gateway.secretKey);
    expect(found.map(({ request_id }) => request_id)).toEqual([bare, streamed, full]);
    const ended = { status: 200, latency_ms: expect.any(Number), cached_tokens: 0 };
    const nothing = { user: null, session_id: null, trace: null, metadata: null };
    expect(found[2]!.details).toEqual({ ...ended, reasoning_tokens: 0, ...recorded } as never);
    expect(found[1]!.details).toMatchObject({ ...ended, ...nothing, user: "bob" });
    expect(found[0]!.details).toEqual({ ...ended, reasoning_tokens: 0, ...nothing } as never);
    expect(await list("?limit=3", gateway.secretKey)).toEqual(found);
  });

  test("are told to their organization alone", async () => {
    await charged(gateway.secretKey, { user: "secret name", metadata: { word: "secret word" } });
    const stranger = await gateway.addOrganization();
    await charged(stranger.secretKey, { user: "own" });
    const seen = await list("", stranger.managementKey);
    expect(JSON.stringify(seen)).not.toContain("secret");
    expect(seen.flatMap(({ details }) => details?.user ?? [])).toEqual(["own"]);
  });

  test("take a bounded part of a page: trace and metadata beyond it are omitted, and say so", async () => {
    const { secretKey, organization } = await gateway.addOrganization();
    const trace = { filler: "x".repeat(OBJECT_BYTES) };
    const pairs = Array.from({ length: 16 }, (_, n) => [`filler-${n}`, "y".repeat(512)]);
    const metadata = Object.fromEntries(pairs);
    const detailBytes = JSON.stringify(trace).length + JSON.stringify(metadata).length;
    await charged(secretKey, { user: "ada", trace, metadata });
    await gateway.sql`INSERT INTO transactions
      SELECT (jsonb_populate_record(t, jsonb_build_object('sequence', t.sequence + n,
        'id', 'txn_' || n, 'request_id', t.id || n))).*
      FROM transactions t, generate_series(1, 199) n
      WHERE t.organization_id = ${organization.id} AND t.type = 'usage'`;
    for (const query of ["?limit=200", "?limit=200&type=usage"]) {
      const page = await list(query, secretKey);
      expect(page).toHaveLength(200);
      expect(JSON.stringify(page).length).toBeLessThan(PAGE_BYTES + 200_000);
      const omitted = page.map(({ details }) => details?.omitted === true);
      // The newest have them, and the others say that theirs are omitted.
      expect(omitted.indexOf(true)).toBe(Math.floor(PAGE_BYTES / (detailBytes + 24)));
      expect(omitted.lastIndexOf(false)).toBe(omitted.indexOf(true) - 1);
      expect(page.every(({ details }) => details?.user === "ada")).toBe(true);
    }
    const [oldest] = await list("?limit=1&type=usage&offset=199", secretKey);
    expect(oldest!.details!.metadata).toEqual(metadata);
  });
});
