import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const chat = (key: string) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }], max_tokens: 5 },
    { key },
  );

interface CreatedKey {
  readonly id: string;
  readonly key: string;
  readonly [field: string]: unknown;
}

interface ListedKey {
  readonly id: string;
  readonly key_prefix: string;
  readonly usage_today_usd: number;
  readonly usage_month_usd: number;
  readonly last_used_at: string;
}

async function create(body: Record<string, unknown>, key = gateway.managementKey) {
  const response = await gateway.request("POST", "/v1/keys", body, { key });
  return { status: response.status, body: (await response.json()) as CreatedKey };
}

describe("POST /v1/keys", () => {
  test("answers 201 with the whole create shape and the secret", async () => {
    const { status, body } = await create({ name: "first" });
    expect(status).toBe(201);
    expect(Object.keys(body).sort()).toEqual(
      [
        "id",
        "key",
        "name",
        "scopes",
        "rate_limit_rpm",
        "rate_limit_tpm",
        "daily_budget_usd",
        "monthly_budget_usd",
        "budget_includes_byok",
        "allowed_models",
        "expires_at",
        "team_id",
        "owner_id",
        "created_at",
        "is_active",
      ].sort(),
    );
    expect(body).toMatchObject({ name: "first", is_active: true, rate_limit_rpm: null });
    expect(body.key).toMatch(/^gateway_sk_[0-9A-Za-z]{38}$/);
    expect((await chat(body.key)).status).toBe(200);
  });

  test("keeps the settings it was given", async () => {
    const expires = new Date(Date.now() + 3_600_000).toISOString();
    const settings = {
      name: "set",
      scopes: ["chat:completions"],
      rate_limit_rpm: 7,
      daily_budget_usd: 0.000000001,
      monthly_budget_usd: 12.5,
      allowed_models: ["sandbox/chat"],
      expires_at: expires,
    };
    expect((await create(settings)).body).toMatchObject(settings);
  });

  test("refuses a taken name with 409", async () => {
    await create({ name: "twice" });
    const again = await create({ name: "twice" });
    expect(again.status).toBe(409);
    expect(again.body.error).toMatchObject({ code: "name_taken", param: "name" });
  });

  test("lets one of many simultaneous creations of a name through", async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => create({ name: "race" })));
    expect(all.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(all.filter(({ status }) => status === 409)).toHaveLength(19);
  });

  test.each([
    [{}],
    [{ name: "" }],
    [{ name: 5 }],
    [{ name: "x", rate_limit_rpm: 0 }],
    [{ name: "x", rate_limit_rpm: 1.5 }],
    [{ name: "x", rate_limit_rpm: "5" }],
    [{ name: "x", rate_limit_tpm: 0 }],
    [{ name: "x", rate_limit_tpm: 2_147_483_648 }],
    [{ name: "x", daily_budget_usd: -1 }],
    [{ name: "x", daily_budget_usd: 0.0000000001 }],
    [{ name: "x", monthly_budget_usd: "5" }],
    [{ name: "x", monthly_budget_usd: 1e300 }],
    [{ name: "x", scopes: ["nope"] }],
    [{ name: "x", scopes: "chat:completions" }],
    [{ name: "x", scopes: [] }],
    [{ name: "x", allowed_models: [] }],
    [{ name: "x", allowed_models: [5] }],
    [{ name: "x", expires_at: "yesterday" }],
    [{ name: "x", expires_at: "2020-01-01T00:00:00Z" }],
    [{ name: "x", expires_at: "2099-02-30" }],
    [{ name: "x", expires_at: "9999-12-31T23:59:59-23:59" }],
    [{ name: "x", unknown: 1 }],
    [{ name: "x\u0000" }],
    [[]],
    [null],
  ])("refuses the body %j with 400", async (body) => {
    const response = await gateway.request("POST", "/v1/keys", JSON.stringify(body), {
      key: gateway.managementKey,
    });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { type: "invalid_request_error" } });
  });
});

describe("a key's life", () => {
  test("goes from active to inactive and back, and ends deleted for good", async () => {
    const { body: key } = await create({ name: "life" });
    const patch = (change: unknown) =>
      gateway.request("PATCH", `/v1/keys/${key.id}`, change, { key: gateway.managementKey });

    expect((await patch({ is_active: false })).status).toBe(200);
    const refused = await chat(key.key);
    expect(refused.status).toBe(401);
    expect(await refused.json()).toMatchObject({ error: { code: "key_inactive" } });

    expect((await patch({ is_active: true })).status).toBe(200);
    expect((await chat(key.key)).status).toBe(200);

    const removed = await gateway.request("DELETE", `/v1/keys/${key.id}`, undefined, {
      key: gateway.managementKey,
    });
    expect(await removed.json()).toEqual({ id: key.id, deleted: true });
    expect((await chat(key.key)).status).toBe(401);
    expect((await patch({ is_active: true })).status).toBe(404);

    const events = await gateway.sql<{ type: string }[]>`
      SELECT type FROM outbox WHERE data->>'key_id' = ${key.id} ORDER BY id`;
    expect(events.map(({ type }) => type)).toEqual([
      "key.created",
      "key.updated",
      "key.updated",
      "key.deleted",
    ]);
  });

  test("tells of a change by the names that callers know its fields by", async () => {
    const { body: key } = await create({ name: "told" });
    const change = {
      name: "told again",
      scopes: ["models:read"],
      rate_limit_rpm: 5,
      daily_budget_usd: 1,
      monthly_budget_usd: 2,
      allowed_models: ["sandbox/chat"],
      expires_at: "2099-01-01T00:00:00Z",
      is_active: true,
    };
    await gateway.request("PATCH", `/v1/keys/${key.id}`, change, { key: gateway.managementKey });
    const [event] = await gateway.sql<{ data: { changed: string[] } }[]>`
      SELECT data FROM outbox WHERE data->>'key_id' = ${key.id} AND type = 'key.updated'`;
    expect(event!.data.changed.toSorted()).toEqual(Object.keys(change).sort());
  });

  test("is not told of where a PATCH holds no field", async () => {
    const { body: key } = await create({ name: "untouched" });
    const options = { key: gateway.managementKey };
    const response = await gateway.request("PATCH", `/v1/keys/${key.id}`, {}, options);
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ id: key.id, name: "untouched" });
    const events = await gateway.sql`SELECT 1 FROM outbox
      WHERE data->>'key_id' = ${key.id} AND type = 'key.updated'`;
    expect(events).toHaveLength(0);
  });

  test("frees its name when it is deleted", async () => {
    const { body: key } = await create({ name: "reborn" });
    await gateway.request("DELETE", `/v1/keys/${key.id}`, undefined, {
      key: gateway.managementKey,
    });
    expect((await create({ name: "reborn" })).status).toBe(201);
  });

  test("changes only the fields present, and null takes a limit away", async () => {
    const { body: key } = await create({
      name: "partial",
      rate_limit_rpm: 5,
      rate_limit_tpm: 9,
      daily_budget_usd: 1,
    });
    const patch = async (change: unknown) => {
      const response = await gateway.request("PATCH", `/v1/keys/${key.id}`, change, {
        key: gateway.managementKey,
      });
      return response.json() as Promise<Record<string, unknown>>;
    };
    expect(await patch({ daily_budget_usd: 2 })).toMatchObject({
      rate_limit_rpm: 5,
      rate_limit_tpm: 9,
      daily_budget_usd: 2,
    });
    const item = await patch({ rate_limit_rpm: null, rate_limit_tpm: null });
    expect(item).toMatchObject({
      rate_limit_rpm: null,
      rate_limit_tpm: null,
      daily_budget_usd: 2,
      name: "partial",
    });
    expect(item).not.toHaveProperty("key");
  });

  test("is refused once it has expired", async () => {
    const { body: key } = await create({
      name: "short",
      expires_at: new Date(Date.now() + 300).toISOString(),
    });
    let response = await chat(key.key);
    while (response.status === 200) response = await chat(key.key);
    expect(response.status).toBe(401);
    expect(await response.json()).toMatchObject({ error: { code: "key_expired" } });
  });
});

describe("GET /v1/keys", () => {
  test("lists items with masked secrets, spend and last use", async () => {
    const { body: key } = await create({ name: "listed" });
    await chat(key.key);
    const response = await gateway.request("GET", "/v1/keys?limit=1000", undefined, {
      key: gateway.managementKey,
    });
    const list = (await response.json()) as { data: ListedKey[]; total: number };
    const item = list.data.find(({ id }) => id === key.id)!;
    expect(item.key_prefix).toBe(`${String(key.key).slice(0, 15)}…`);
    expect(item.usage_today_usd).toBeGreaterThan(0);
    expect(item.usage_month_usd).toBe(item.usage_today_usd);
    expect(Date.parse(item.last_used_at)).toBeGreaterThan(Date.now() - 60_000);
    expect(JSON.stringify(list)).not.toContain(key.key);
    expect(list.total).toBe(list.data.length);
  });

  test("tells the last use of a key whose calls all failed", async () => {
    const { body: key } = await create({ name: "unlucky" });
    const body = { model: "no/such-model", messages: [{ role: "user", content: "hi" }] };
    const options = { key: key.key };
    const failed = await gateway.request("POST", "/v1/chat/completions", body, options);
    expect(failed.status).toBe(404);
    const used = await until("its use is noted", async () => {
      const response = await gateway.request("GET", `/v1/keys/${key.id}`, undefined, {
        key: gateway.managementKey,
      });
      return ((await response.json()) as ListedKey).last_used_at ?? undefined;
    });
    expect(Date.parse(used)).toBeGreaterThan(Date.now() - 60_000);
  });

  test("pages and filters", async () => {
    const get = async (query: string) => {
      const response = await gateway.request("GET", `/v1/keys${query}`, undefined, {
        key: gateway.managementKey,
      });
      return { status: response.status, body: (await response.json()) as { data: unknown[] } };
    };
    const first = (await get("?limit=2")).body;
    const second = (await get("?limit=2&offset=2")).body;
    expect(first.data.length).toBe(2);
    expect(first.data).not.toEqual(second.data);
    expect((await get("?active=false")).body.data).toEqual([]);
    const { body: sought } = await create({ name: "100%_Found \\ here" });
    for (const text of ["%_f", "\\ HERE", String(sought.key).slice(0, 15)]) {
      const { body } = await get(`?search=${encodeURIComponent(text)}`);
      expect(body).toMatchObject({ data: [{ id: sought.id }], total: 1 });
    }
    expect((await get("?search=no+such&active=true")).body).toMatchObject({ data: [], total: 0 });
    for (const query of [
      "?limit=1e2",
      "?limit=0",
      "?limit=-1",
      "?limit=5&limit=6",
      "?active=yes",
      "?nope=1",
      "?offset=1.5",
      "?search=",
      "?search=%00",
    ]) {
      expect({ query, status: (await get(query)).status }).toEqual({ query, status: 400 });
    }
  });
});
