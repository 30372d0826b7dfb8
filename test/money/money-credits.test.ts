import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { postCredit } from "../../db/ledger/credits.ts";
import { newId } from "../../src/lib/ids.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { EXACT_TOKENS, type MoneyGateway, startMoneyGateway } from "./money-gateway.ts";

interface Transaction {
  readonly id: string;
  readonly type: string;
  readonly amount_usd: number;
  readonly balance_after_usd: number;
  readonly description: string;
  readonly created_at: string;
  readonly [field: string]: unknown;
}

interface Page {
  readonly data: Transaction[];
  readonly total: number;
  readonly has_more: boolean;
}

const CHARGE_USD = 0.0000104;
const USAGES = 3;
/** Every transaction of the organization, oldest first: its type, its amount, and when it came about. */
const HISTORY = [
  { type: "adjustment", amountUsd: 10, at: "2026-03-01T00:00:00.000Z" },
  { type: "topup", amountUsd: 25.5, at: "2026-03-02T12:00:00.000Z" },
  { type: "refund", amountUsd: 0.000000001, at: "2026-03-02T23:59:59.999Z" },
  { type: "adjustment", amountUsd: -5, at: "2026-03-03T00:00:00.000Z" },
  { type: "usage", amountUsd: -CHARGE_USD, at: "2026-03-03T10:00:00.000Z" },
  { type: "usage", amountUsd: -CHARGE_USD, at: "2026-03-03T11:00:00.000Z" },
  { type: "usage", amountUsd: -CHARGE_USD, at: "2026-03-04T00:00:00.500Z" },
] as const;

let gateway: MoneyGateway;
const requestIds: string[] = [];

beforeAll(async () => {
  gateway = await startMoneyGateway({ creditUsd: HISTORY[0].amountUsd });
  for (const { type, amountUsd } of HISTORY.slice(1, -USAGES)) {
    await postCredit(gateway.sql, {
      transactionId: newId("txn"),
      organizationId: gateway.organizationId,
      type: type as "topup",
      amountNano: BigInt(Math.round(amountUsd * 1e9)),
      description: `By hand: ${type}`,
    });
  }
  for (let i = 0; i < USAGES; i++) {
    const response = await gateway.chat(gateway.secretKey);
    expect(response.status).toBe(200);
    requestIds.push(response.headers.get("x-gateway-request-id")!);
  }
  for (const [i, { at }] of HISTORY.entries()) {
    await gateway.sql`UPDATE transactions SET created_at = ${at}
      WHERE organization_id = ${gateway.organizationId} AND sequence = ${i + 1}`;
  }
});
afterAll(() => gateway.stop());

const get = (path: string, key = gateway.secretKey) =>
  gateway.request("GET", path, undefined, { key });

async function list(query = "", key?: string): Promise<Page> {
  const response = await get(`/v1/credits/transactions${query}`, key);
  expect(response.status).toBe(200);
  return (await response.json()) as Page;
}

/** What the history says of a filtered list, newest first. */
const expected = (keep: (entry: (typeof HISTORY)[number]) => boolean) =>
  HISTORY.filter(keep)
    .toReversed()
    .map(({ type, at }) => `${type} ${at}`);
const seen = ({ data }: Page) => data.map(({ type, created_at }) => `${type} ${created_at}`);

describe("GET /v1/credits", () => {
  test("tells the balance, which is the sum of all transactions, and what was spent", async () => {
    const response = await get("/v1/credits");
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      balance_usd: 30.499968801,
      lifetime_spend_usd: 0.0000312,
      auto_replenish: false,
      replenish_amount_usd: 0,
      replenish_threshold_usd: 0,
      replenish_payment_method_id: null,
      replenish_status: "off",
    });
  });

  test("follows each charge at once", async () => {
    const { managementKey, secretKey } = await gateway.addOrganization({ creditUsd: 1 });
    for (const [charges, balance] of [
      [1, 0.9999896],
      [2, 0.9999792],
    ] as const) {
      expect((await gateway.chat(secretKey)).headers.get("x-gateway-cost")).toBe("0.0000104");
      expect(await (await get("/v1/credits", managementKey)).json()).toMatchObject({
        balance_usd: balance,
        lifetime_spend_usd: Number((charges * CHARGE_USD).toFixed(9)),
      });
    }
  });
});

describe("GET /v1/credits/transactions", () => {
  test("lists all kinds newest first, each balance following from the one before", async () => {
    const page = await list();
    expect(seen(page)).toEqual(expected(() => true));
    expect(page).toMatchObject({ total: HISTORY.length, has_more: false });
    expect(page.data.map(({ amount_usd }) => amount_usd)).toEqual(
      HISTORY.map(({ amountUsd }) => amountUsd).toReversed(),
    );
    let balance = 0;
    for (const transaction of page.data.toReversed()) {
      balance = Number((balance + transaction.amount_usd).toFixed(9));
      expect(transaction.balance_after_usd).toBe(balance);
      expect(transaction.id).toMatch(/^txn_[0-9a-f]{32}$/);
      expect(transaction.description).toMatch(/\S/);
    }
  });

  test("a usage names its model and its request, and nothing else does", async () => {
    const { data } = await list();
    const usages = data.filter(({ type }) => type === "usage");
    expect(usages.map(({ request_id }) => request_id)).toEqual(requestIds.toReversed());
    for (const usage of usages) {
      expect(usage).toMatchObject({
        model: "test/exact",
        provider: "upstream",
        completion_tokens: EXACT_TOKENS,
        estimated: false,
        key_id: expect.stringMatching(/^key_/),
      });
    }
    for (const other of data.filter(({ type }) => type !== "usage")) {
      expect(Object.keys(other).sort()).toEqual(
        [
          "id",
          "type",
          "kind",
          "amount_usd",
          "balance_after_usd",
          "description",
          "created_at",
        ].sort(),
      );
    }
  });

  test.each(["usage", "topup", "refund", "adjustment"])("filters by the type %s", async (type) => {
    const page = await list(`?type=${type}`);
    expect(seen(page)).toEqual(expected((entry) => entry.type === type));
    expect(page.total).toBe(page.data.length);
  });

  test.each([
    ["?start_date=2026-03-03", (at: string) => at >= "2026-03-03"],
    ["?end_date=2026-03-02", (at: string) => at < "2026-03-03"],
    ["?start_date=2026-03-02&end_date=2026-03-02", (at: string) => at.startsWith("2026-03-02")],
    ["?start_date=2026-03-02T23:59:59.999Z", (at: string) => at >= "2026-03-02T23:59:59.999Z"],
    ["?start_date=2026-03-03T00:00:00.001Z", (at: string) => at > "2026-03-03T00:00:00.000Z"],
    ["?end_date=2026-03-03T10:00:00Z", (at: string) => at <= "2026-03-03T10:00:00.000Z"],
    ["?end_date=2026-03-03T12:00:00%2B02:00", (at: string) => at <= "2026-03-03T10:00:00.000Z"],
    ["?start_date=2027-01-01", () => false],
    ["?start_date=0001-01-01&end_date=9999-12-31", () => true],
    ["?start_date=9999-12-31&end_date=9999-12-31T23:59:59.999Z", () => false],
    ["?end_date=2025-12-31", () => false],
  ])("takes both ends of a span in: %s", async (query, keep) => {
    const page = await list(query);
    expect(seen(page)).toEqual(expected(({ at }) => keep(at)));
    expect(page).toMatchObject({ total: page.data.length, has_more: false });
  });

  test("filters together", async () => {
    const page = await list("?type=usage&start_date=2026-03-03&end_date=2026-03-03&limit=1");
    expect(seen(page)).toEqual(["usage 2026-03-03T11:00:00.000Z"]);
    expect(page).toMatchObject({ total: 2, has_more: true });
  });

  test("filters by key and model, together with type and dates", async () => {
    const { managementKey } = await gateway.addOrganization({ creditUsd: 1 });
    const { id, secret } = await gateway.addKey({}, managementKey);
    const other = await gateway.addKey({}, managementKey);
    for (const key of [secret, other.secret]) {
      for (const model of ["test/exact", "test/brief"]) {
        expect((await gateway.chat(key, { model })).status).toBe(200);
      }
    }
    const found = async (query: string, key = managementKey) => {
      const { data, total } = await list(`?${query}`, key);
      expect(total).toBe(data.length);
      return data.map(({ model, key_id }) => [model, key_id]);
    };
    const [exact, brief] = [
      ["test/exact", id],
      ["test/brief", id],
    ];
    expect(await found(`key_id=${id}`)).toEqual([brief, exact]);
    expect(await found(`key_id=${id}&model=test%2Fexact`)).toEqual([exact]);
    expect(await found("model=test/brief")).toEqual([["test/brief", other.id], brief]);
    expect(await found(`key_id=${id}&type=usage&start_date=2026-04-01`)).toEqual([brief, exact]);
    for (const nothing of [
      `key_id=${id}&type=topup`,
      `key_id=${id}&end_date=2026-04-01`,
      "model=test/none",
      "key_id=key_none",
    ]) {
      expect(await found(nothing)).toEqual([]);
    }
    expect(await found(`key_id=${id}`, gateway.managementKey)).toEqual([]);
    const limited = await gateway.addKey({ rate_limit_rpm: 100 }, managementKey);
    expect(await found(`key_id=${id}`, limited.secret)).toEqual([]);
    expect(await found("model=test/brief", limited.secret)).toEqual([]);
  });

  test.each([1, 2, 3, 6, 7, 200])("pages of %d bring every transaction once", async (limit) => {
    const all = seen(await list());
    const paged: string[] = [];
    for (let offset = 0; offset < all.length; offset += limit) {
      const page = await list(`?limit=${limit}&offset=${offset}`);
      expect(page.total).toBe(all.length);
      expect(page.has_more).toBe(offset + limit < all.length);
      paged.push(...seen(page));
    }
    expect(paged).toEqual(all);
  });

  test("a page behind the end is empty", async () => {
    expect(await list("?offset=1000")).toEqual({
      data: [],
      total: HISTORY.length,
      has_more: false,
    });
  });

  test.each([
    "limit=0",
    "limit=201",
    "limit=-1",
    "limit=1e2",
    "limit=1.5",
    "limit=01",
    "limit=",
    "limit=%205",
    "limit=5&limit=5",
    "limit=99999999999999999999",
    "offset=-1",
    "offset=x",
    "offset=9007199254740992",
    "key_id=",
    "key_id=a&key_id=b",
    "model=",
    "model=%00",
    "type=spend",
    "type=",
    "type=Usage",
    "type=usage&type=usage",
    "start_date=",
    "start_date=yesterday",
    "start_date=2026-02-30",
    "start_date=2026-13-01",
    "start_date=0000-01-01",
    "end_date=9999-12-31T23:59:59-01:00",
    "start_date=1770000000",
    "end_date=2026-03-03T25:00:00Z",
    "end_date=2026-03-03%00",
    "start_date=2026-03-04&end_date=2026-03-03",
    "page=2",
    "__proto__=1",
  ])("refuses %s with 400", async (query) => {
    await expectError(await get(`/v1/credits/transactions?${query}`), 400, "invalid_query");
  });
});

describe("who may look", () => {
  test.each(["/v1/credits", "/v1/credits/transactions"])("%s", async (path) => {
    expect((await get(path, gateway.managementKey)).status).toBe(200);
    const reader = await addSecretKey(gateway, { scopes: ["billing:read"] });
    expect((await get(path, reader)).status).toBe(200);
    const other = await addSecretKey(gateway, { scopes: ["chat:completions", "billing:write"] });
    await expectError(await get(path, other), 403, "missing_scope");
  });

  test("a limited key sees its own charges alone, without balances that show what others spend", async () => {
    const mine = await gateway.addKey({ rate_limit_rpm: 100 });
    const other = await gateway.addKey({});
    expect((await gateway.chat(mine.secret)).status).toBe(200);
    expect((await gateway.chat(other.secret)).status).toBe(200);
    const keysOf = async (query: string, key: string) =>
      (await list(query, key)).data.map((entry) => (entry as { key_id?: string }).key_id);
    expect(await keysOf("?limit=2", gateway.managementKey)).toEqual([other.id, mine.id]);
    for (const query of ["", "?type=usage", `?key_id=${mine.id}`]) {
      expect(await list(query, mine.secret)).toMatchObject({
        data: [{ key_id: mine.id, balance_after_usd: null }],
        total: 1,
        has_more: false,
      });
    }
    for (const query of [`?key_id=${other.id}`, "?type=topup", "?type=adjustment"]) {
      expect(await list(query, mine.secret)).toEqual({ data: [], total: 0, has_more: false });
    }
    expect(await keysOf("?limit=1", other.secret)).toEqual([other.id]);
    await expectError(await get("/v1/credits", mine.secret), 403, "key_not_permitted");
  });

  test("another organization sees its own balance and transactions alone", async () => {
    const stranger = await gateway.addOrganization({ creditUsd: 3 });
    for (const key of [stranger.managementKey, stranger.secretKey]) {
      expect(await (await get("/v1/credits", key)).json()).toMatchObject({
        balance_usd: 3,
        lifetime_spend_usd: 0,
      });
      const page = await list("", key);
      expect(page.data.map(({ amount_usd }) => amount_usd)).toEqual([3]);
      expect(page.total).toBe(1);
      expect(await list("?type=usage", key)).toMatchObject({ data: [], total: 0 });
    }
    const broke = await gateway.addOrganization({ creditUsd: 0 });
    expect(await list("", broke.managementKey)).toEqual({ data: [], total: 0, has_more: false });
  });
});

test("a key's spend of the day and the month and its last use are told after its charges", async () => {
  const { id, secret } = await gateway.addKey({});
  const item = async () =>
    (await (await get(`/v1/keys/${id}`, gateway.managementKey)).json()) as Record<string, unknown>;
  expect(await item()).toMatchObject({
    usage_today_usd: 0,
    usage_month_usd: 0,
    last_used_at: null,
  });
  const startedMs = Date.now();
  for (const times of [1, 2]) {
    expect((await gateway.chat(secret)).status).toBe(200);
    const { usage_today_usd, usage_month_usd, last_used_at } = await item();
    const spent = Number((times * CHARGE_USD).toFixed(9));
    expect([usage_today_usd, usage_month_usd]).toEqual([spent, spent]);
    expect(Date.parse(String(last_used_at))).toBeWithin(startedMs - 1_000, Date.now() + 1_000);
  }
});
