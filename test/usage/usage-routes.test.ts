import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { until } from "../support/until.ts";
import { usageFaults } from "../support/usage-faults.ts";

type Row = Record<string, string | number | null>;

const FIGURES = [
  ...["requests", "errors", "prompt_tokens", "completion_tokens", "cached_tokens"],
  ...["reasoning_tokens", "images", "characters", "seconds", "search_units", "cost_usd"],
];

let gateway: ChatGateway;
let limitedKey: string;
let model: string;
let chargedNano = 0n;
beforeAll(async () => {
  gateway = await startChatGateway();
  limitedKey = await addSecretKey(gateway, { dailyBudgetNano: 10n ** 9n });
  model = `test/${gateway.modelThat()}`;
  const ask = (body: object, key = gateway.secretKey) =>
    gateway.request(
      "POST",
      "/v1/chat/completions",
      { model, messages: [{ role: "user", content: "hello" }], ...body },
      { key },
    );
  const answers = [
    await ask({ user: "ada", metadata: { tags: ["red", "=1+1"] } }),
    await ask({ user: "=cmd()", metadata: { tags: " red,, red" } }),
    await ask({ user: '-1,"x"', stream: true }),
    await ask({ user: "ada" }, limitedKey),
    await ask({ model: "test/none", user: "ada", metadata: { tags: "red" } }),
  ];
  for (const answer of answers) await answer.text();
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 404]);
  await until("the failure is written down", async () => {
    const [row] = await gateway.sql`SELECT 1 FROM failed_requests`;
    return row !== undefined;
  });
  const [row] =
    await gateway.sql`SELECT -sum(amount_nano) AS nano FROM transactions WHERE type = 'usage'`;
  chargedNano = BigInt(row!.nano);
});
afterAll(() => gateway.stop());

function ask(query: string, key = gateway.managementKey): Promise<Response> {
  return gateway.request("GET", `/v1/usage?${query}`, undefined, { key });
}

async function rowsOf(query: string, key?: string): Promise<Row[]> {
  const response = await ask(query, key);
  expect(response.status).toBe(200);
  const { data, ...rest } = (await response.json()) as { data: Row[] };
  expect(rest).toEqual({ has_more: false, is_complete: true });
  return data;
}

const today = new Date().toISOString().slice(0, 10);
const sumOf = (rows: readonly Row[], figure: string) =>
  rows.reduce((sum, row) => sum + Number(row[figure]), 0);

describe("GET /v1/usage", () => {
  test("is added to behind charges and failures, whether it is asked for or not", async () => {
    await until("all requests are added", async () => {
      const [row] = await gateway.sql`SELECT sum(requests)::int AS requests FROM usage_rollups
        WHERE grain = 'day'`;
      return row!.requests === 5;
    });
  });

  test("shows what was charged to the nano-USD, with failures", async () => {
    const [row, ...others] = await rowsOf("");
    expect(others).toEqual([]);
    expect(Object.keys(row!)).toEqual(["date", ...FIGURES]);
    expect(row).toMatchObject({ date: today, requests: 5, errors: 1, images: 0, seconds: 0 });
    expect(row!.cost_usd).toBe(Number(chargedNano) / 1e9);
    expect(row!.prompt_tokens).toBeGreaterThan(0);
    expect(await usageFaults(gateway.sql)).toEqual([]);
  });

  test("groups by model, key and provider, alone and together, and the sums stay the same", async () => {
    for (const groups of [
      "model",
      "key",
      "provider",
      "model,key,provider",
      "user",
      "user,model,key",
    ]) {
      const rows = await rowsOf(`group_by=${groups}`);
      const names = groups.split(",").map((group) => (group === "key" ? "key_id" : group));
      for (const row of rows) expect(Object.keys(row)).toEqual(["date", ...names, ...FIGURES]);
      expect([groups, sumOf(rows, "requests"), sumOf(rows, "errors")]).toEqual([groups, 5, 1]);
      expect(sumOf(rows, "cost_usd")).toBeCloseTo(Number(chargedNano) / 1e9, 12);
    }
    const models = await rowsOf("group_by=model");
    expect(models.map((row) => [row.model, row.requests])).toEqual([
      [null, 1],
      [model, 4],
    ]);
    expect(await rowsOf("group_by=key")).toHaveLength(2);
  });

  test("groups by user, and by each tag of a request", async () => {
    const users = await rowsOf("group_by=user");
    expect(users.map((row) => [row.user, row.requests])).toEqual([
      ['-1,"x"', 1],
      ["=cmd()", 1],
      ["ada", 3],
    ]);
    const tags = await rowsOf("group_by=tag");
    expect(tags.map((row) => [row.tag, row.requests, row.errors])).toEqual([
      [null, 2, 0],
      ["=1+1", 1, 0],
      ["red", 3, 1],
    ]);
  });

  test("names hours, days and months by their start", async () => {
    const hour = `${new Date().toISOString().slice(0, 13)}:00:00Z`;
    const [hours, months] = [await rowsOf("interval=hour"), await rowsOf("interval=month")];
    expect(hours.map(({ date }) => String(date).slice(0, 11))).toEqual([`${today}T`]);
    expect(String(hours[0]!.date) <= hour).toBe(true);
    expect(months.map(({ date }) => date)).toEqual([`${today.slice(0, 7)}-01`]);
  });

  test("filters by key, model and time; the end is exclusive, also of a day", async () => {
    const keys = await rowsOf("group_by=key");
    for (const { key_id, requests } of keys) {
      expect(sumOf(await rowsOf(`key_id=${key_id}`), "requests")).toBe(Number(requests));
      expect(sumOf(await rowsOf(`key_id=${key_id}&group_by=user`), "requests")).toBe(
        Number(requests),
      );
    }
    expect(await rowsOf("key_id=key_none")).toEqual([]);
    expect(sumOf(await rowsOf(`model=${encodeURIComponent(model)}`), "requests")).toBe(4);
    expect(await rowsOf("model=none")).toEqual([]);
    const tomorrow = new Date(Date.parse(today) + 86_400_000).toISOString().slice(0, 10);
    for (const group of ["", "&group_by=user", "&group_by=key"]) {
      expect(
        sumOf(await rowsOf(`start_date=${today}&end_date=${tomorrow}${group}`), "requests"),
      ).toBe(5);
      expect(await rowsOf(`end_date=${today}${group}`)).toEqual([]);
      expect(await rowsOf(`start_date=${tomorrow}${group}`)).toEqual([]);
      const now = new Date().toISOString();
      expect(sumOf(await rowsOf(`start_date=${today}&end_date=${now}${group}`), "requests")).toBe(
        5,
      );
      expect(
        sumOf(await rowsOf(`start_date=0001-01-01&end_date=9999-12-31${group}`), "requests"),
      ).toBe(5);
    }
  });

  test("pages without a gap", async () => {
    const all = await rowsOf("group_by=user");
    const paged: Row[] = [];
    for (let offset = 0; ; offset++) {
      const response = await ask(`group_by=user&limit=1&offset=${offset}`);
      const { data, has_more } = (await response.json()) as { data: Row[]; has_more: boolean };
      paged.push(...data);
      expect(has_more).toBe(offset < all.length - 1);
      if (!has_more) break;
    }
    expect(paged).toEqual(all);
    expect(await rowsOf(`group_by=user&offset=${Number.MAX_SAFE_INTEGER}`)).toEqual([]);
  });

  test("with top has rows for the largest names, and one row for all others", async () => {
    const tomorrow = new Date(Date.parse(today) + 86_400_000).toISOString().slice(0, 10);
    const span = `start_date=${today}&end_date=${tomorrow}`;
    const topOf = async (query: string, key?: string) =>
      (await rowsOf(`${span}&${query}`, key)).map((row) => [
        row.user,
        String(row.is_rest),
        row.requests,
      ]);
    expect(await topOf("group_by=user&top=1&top_by=requests")).toEqual([
      ["ada", "false", 3],
      [null, "true", 2],
    ]);
    expect(await topOf("group_by=user&top=3")).toEqual([
      ['-1,"x"', "false", 1],
      ["=cmd()", "false", 1],
      ["ada", "false", 3],
    ]);
    expect((await topOf("group_by=user&top=1&top_by=errors"))[0]).toEqual(["ada", "false", 3]);
    for (const by of ["cost_usd", "tokens"]) {
      const rows = await rowsOf(`${span}&group_by=key&top=1&top_by=${by}`);
      expect([by, sumOf(rows, "requests")]).toEqual([by, 5]);
      expect(sumOf(rows, "cost_usd")).toBeCloseTo(Number(chargedNano) / 1e9, 12);
    }
    // A limited key sees no name, and no rest, of another key.
    expect(await topOf("group_by=user&top=1", limitedKey)).toEqual([["ada", "false", 1]]);
  });

  test("as CSV has the same figures, and no cell that a program of sheets would run", async () => {
    const response = await ask("group_by=user&format=csv");
    expect(response.headers.get("content-type")).toBe("text/csv; charset=utf-8");
    expect(response.headers.get("x-gateway-has-more")).toBe("false");
    const lines = (await response.text()).split("\r\n");
    const rows = await rowsOf("group_by=user");
    const cells = (row: Row, user: string) =>
      [today, user, ...FIGURES.map((figure) => String(row[figure]))].join(",");
    expect(lines).toEqual([
      ["date", "user", ...FIGURES].join(","),
      cells(rows[0]!, `"'-1,""x"""`),
      cells(rows[1]!, "'=cmd()"),
      cells(rows[2]!, "ada"),
      "",
    ]);
    const first = await ask("group_by=user&format=csv&limit=1");
    expect(first.headers.get("x-gateway-has-more")).toBe("true");
    expect(await (await ask("end_date=2020-01-01&format=csv")).text()).toBe(
      `${["date", ...FIGURES].join(",")}\r\n`,
    );
  });

  test("shows a charge as soon as its answer has come", async () => {
    const { managementKey, secretKey, organization } = await gateway.addOrganization();
    for (let requests = 1; requests <= 5; requests++) {
      const answer = await gateway.chat(model.slice("test/".length), {}, { key: secretKey });
      await answer.text();
      expect(sumOf(await rowsOf("", managementKey), "requests")).toBe(requests);
    }
    const [row] = await gateway.sql`SELECT posted_nano FROM accounts
      WHERE id = ${`org:${organization.id}`}`;
    expect((await rowsOf("", managementKey))[0]!.cost_usd).toBe(Number(row!.posted_nano) / 1e9);
  });

  test("a limited secret key sees its own figures alone, another organization none of them", async () => {
    expect(sumOf(await rowsOf("", limitedKey), "requests")).toBe(1);
    expect(sumOf(await rowsOf("group_by=user", limitedKey), "requests")).toBe(1);
    const [own] = await rowsOf("group_by=key", limitedKey);
    expect(await rowsOf(`key_id=${own!.key_id}`, limitedKey)).toHaveLength(1);
    const others = (await rowsOf("group_by=key")).filter(({ key_id }) => key_id !== own!.key_id);
    expect(await rowsOf(`key_id=${others[0]!.key_id}`, limitedKey)).toEqual([]);
    expect(sumOf(await rowsOf("", gateway.secretKey), "requests")).toBe(5);
    const { managementKey } = await gateway.addOrganization();
    expect(await rowsOf("", managementKey)).toEqual([]);
    expect(await rowsOf(`key_id=${own!.key_id}`, managementKey)).toEqual([]);
  });

  test.each([
    ["interval=week", "interval"],
    ["group_by=", "group_by"],
    ["group_by=model,", "group_by"],
    ["group_by=model,model", "group_by"],
    ["group_by=cost", "group_by"],
    ["group_by=user,tag", "group_by"],
    ["group_by=user&interval=hour", "interval"],
    ["start_date=yesterday", "start_date"],
    ["end_date=2026-02-30", "end_date"],
    ["start_date=2026-02-02&end_date=2026-02-01", "start_date"],
    ["format=xml", "format"],
    ["limit=0", "limit"],
    ["limit=1001", "limit"],
    ["offset=-1", "offset"],
    ["key_id=", "key_id"],
    ["user=ada", "user"],
    ["group_by=model&top=0&start_date=2026-01-01&end_date=2026-01-02", "top"],
    ["group_by=model&top=201&start_date=2026-01-01&end_date=2026-01-02", "top"],
    ["top=1&start_date=2026-01-01&end_date=2026-01-02", "top"],
    ["group_by=model,key&top=1&start_date=2026-01-01&end_date=2026-01-02", "top"],
    ["group_by=model&top=1&format=csv&start_date=2026-01-01&end_date=2026-01-02", "top"],
    ["group_by=model&top=1", "top"],
    ["group_by=model&top=1&start_date=2026-01-01", "top"],
    ["group_by=model&top=1&start_date=2025-01-01&end_date=2026-02-06", "top"],
    ["group_by=model&top_by=requests", "top_by"],
    ["group_by=model&top=1&top_by=latency&start_date=2026-01-01&end_date=2026-01-02", "top_by"],
  ])("%s is 400 that names %s", async (query, param) => {
    const response = await ask(query);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: "invalid_query", param } });
  });
});

describe("GET /v1/usage/latency", () => {
  const latency = (query: string, key = gateway.managementKey) =>
    gateway.request("GET", `/v1/usage/latency?${query}`, undefined, { key });

  test("shows quantiles of what was answered, and of the first events of streams", async () => {
    const { organization, managementKey, secretKey } = await gateway.addOrganization();
    await (
      await gateway.chat(model.slice("test/".length), { stream: true }, { key: secretKey })
    ).text();
    const [timed] =
      await gateway.sql`SELECT latency_ms, (details->>'first_token_ms')::int AS first_token_ms
      FROM transactions WHERE organization_id = ${organization.id} AND type = 'usage'`;
    expect(timed!.first_token_ms).toBeLessThanOrEqual(timed!.latency_ms);
    // Of 100 requests 90 take 100 ms, five 400 ms and five 5,000 ms.
    await gateway.sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano,
        balance_after_nano, description, status, latency_ms)
      SELECT ${organization.id}, i + 100, 'txn_latency_' || i, 'usage', 0, 0, '', CASE WHEN i > 99 THEN 499 ELSE 200 END,
        CASE WHEN i > 99 THEN 90000 WHEN i > 94 THEN 5000 WHEN i > 89 THEN 400 ELSE 100 END
      FROM generate_series(1, 120) i`;
    const response = await latency("interval=day", managementKey);
    expect(response.status).toBe(200);
    const { data, has_more } = (await response.json()) as { data: Row[]; has_more: boolean };
    expect([data.length, has_more]).toEqual([1, false]);
    const [row] = data;
    expect(row).toMatchObject({ date: today, requests: 100, streams: 1 });
    const isNear = (ms: unknown, wanted: number) =>
      expect(Math.abs(Number(ms) - wanted)).toBeLessThanOrEqual(Math.max(1, wanted * 0.05));
    isNear(row!.p50_ms, 100);
    isNear(row!.p95_ms, 400);
    isNear(row!.first_token_p50_ms, timed!.first_token_ms);
    isNear(row!.first_token_p95_ms, timed!.first_token_ms);
  });

  test("is filtered by time, empty where there is nothing, and refused to limited keys", async () => {
    const rows = async (query: string) =>
      ((await (await latency(query)).json()) as { data: Row[] }).data.length;
    expect(await rows(`start_date=${new Date().toISOString()}&interval=month`)).toBe(1);
    expect(await rows(`end_date=${today}`)).toBe(0);
    expect((await latency("interval=week")).status).toBe(400);
    expect((await latency("", limitedKey)).status).toBe(403);
  });
});
