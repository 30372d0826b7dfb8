import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addHookOwner, type HookOwner } from "./hooks.ts";

let gateway: TestGateway;
let owner: HookOwner;
beforeAll(async () => {
  gateway = await startTestGateway();
  owner = await addHookOwner(gateway);
});
afterAll(() => gateway.stop());

const URL_TEXT = "https://hooks.example.com/gateway";
const body = (changed: Record<string, unknown> = {}) => ({
  url: URL_TEXT,
  events: ["key.created"],
  ...changed,
});
const UNKNOWN = "/v1/webhooks/whk_00000000000000000000000000000000";

describe("POST /v1/webhooks", () => {
  test("201 with the secret, this once", async () => {
    const created = await owner.call("POST", "/v1/webhooks", body({ description: "Alerts" }));
    expect(created.status).toBe(201);
    const hook = await created.json();
    expect(hook).toEqual({
      id: expect.stringMatching(/^whk_[0-9a-f]{32}$/),
      url: URL_TEXT,
      events: ["key.created"],
      description: "Alerts",
      enabled: true,
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      disabled_at: null,
      disabled_by: null,
      secret: expect.stringMatching(/^whsec_[\w-]{43}$/),
    });
    const { secret, ...shown } = hook;
    const path = `/v1/webhooks/${hook.id}`;
    const changed = await owner.call("PATCH", path, { description: null });
    const listed = await (await owner.call("GET", "/v1/webhooks")).json();
    expect(await changed.json()).toEqual({ ...shown, description: null });
    expect(await (await owner.call("GET", path)).json()).toEqual({ ...shown, description: null });
    expect(listed.data).toContainEqual({ ...shown, description: null });
    expect(JSON.stringify(listed)).not.toContain("secret");
    expect(gateway.logLines.join("")).not.toContain(secret);
  });

  test("the secret is encrypted at rest", async () => {
    const secret = `plain ${crypto.randomUUID()}`;
    const created = await owner.call("POST", "/v1/webhooks", body({ secret }));
    const { id } = await created.json();
    const [row] = await gateway.sql<{ secret: Buffer; text: string }[]>`
      SELECT secret, to_jsonb(w)::text AS text FROM webhooks w WHERE id = ${id}`;
    expect(row!.secret.length).toBeGreaterThan(secret.length);
    expect(row!.secret.includes(secret)).toBeFalse();
    expect(row!.text).not.toContain(secret);
  });

  test("any text of at least 16 characters may be the secret", async () => {
    for (const secret of ["0123456789abcdef", "é".repeat(16), "🌍".repeat(100)]) {
      const created = await owner.call("POST", "/v1/webhooks", body({ secret }));
      expect((await created.json()).secret).toBe(secret);
    }
    for (const secret of ["", "x".repeat(257), 5, ["a"]]) {
      await expectError(
        await owner.call("POST", "/v1/webhooks", body({ secret })),
        400,
        "invalid_body",
      );
    }
  });

  test("400 for what is no event type, for none at all, and for unknown fields", async () => {
    for (const wrong of [
      { events: [] },
      { events: ["key.made"] },
      { events: ["key.created", "key.created"] },
      { events: ["key.*"] },
      { events: "key.created" },
      { events: [null] },
      { events: undefined },
      { url: undefined },
      { url: 5 },
      { enabled: "true" },
      { description: 5 },
      { more: 1 },
    ]) {
      await expectError(await owner.call("POST", "/v1/webhooks", body(wrong)), 400, "invalid_body");
    }
    expect((await owner.call("POST", "/v1/webhooks", body({ events: ["*"] }))).status).toBe(201);
  });

  test("only the message for an http URL says how to allow it for development", async () => {
    const messageFor = async (url: string) => {
      const refused = await owner.call("POST", "/v1/webhooks", body({ url }));
      return (await expectError(refused, 400, "invalid_body")).error.message;
    };
    const hint =
      "For development, the operator can allow http with GATEWAY_WEBHOOK_ALLOW_HTTP=true.";
    expect(await messageFor("http://example.com/")).toBe(`url must be https. ${hint}`);
    expect(await messageFor("ftp://example.com/")).toBe("url must be https.");
    expect(await messageFor("https://10.0.0.1/")).not.toContain("GATEWAY_");
  });

  test("400 for a URL that is not https, holds credentials, or leads to what is not public", async () => {
    const wrong = [
      "http://example.com/",
      "ftp://example.com/",
      "example.com",
      "https://user:password@example.com/",
      "https://127.1/",
      "https://2130706433/",
      "https://0x7f.1/",
      "https://0.0.0.0/",
      "https://[::]/",
      "https://[::1]/",
      "https://[::ffff:127.0.0.1]/",
      "https://[::ffff:7f00:1]/",
      "https://[64:ff9b::7f00:1]/",
      "https://169.254.169.254/latest/meta-data/",
      "https://localhost./",
      "https://10.0.0.1/",
      " https://example.com/",
      "https://example.com/\n",
      "https://exam\tple.com/",
      "https://example.com\\@example.org/",
      "https://[fd00::1]/",
      `https://example.com/${"a".repeat(2_048)}`,
    ];
    const created = await owner.call("POST", "/v1/webhooks", body());
    const { id } = await created.json();
    for (const url of wrong) {
      for (const refused of [
        await owner.call("POST", "/v1/webhooks", body({ url })),
        await owner.call("PATCH", `/v1/webhooks/${id}`, { url }),
      ]) {
        const { error } = await expectError(refused, 400, "invalid_body");
        expect(error.param).toBe("url");
      }
    }
    expect(await (await owner.call("GET", `/v1/webhooks/${id}`)).json()).toMatchObject({
      url: URL_TEXT,
    });
  });
});

test("a shorter secret is refused", async () => {
  for (const secret of ["", "0123456789abcde", "🌍".repeat(15)]) {
    const refused = await owner.call("POST", "/v1/webhooks", body({ secret }));
    expect((await expectError(refused, 400, "invalid_body")).error.param).toBe("secret");
  }
});

test("PATCH changes what it names, DELETE ends it", async () => {
  const { id } = await (await owner.call("POST", "/v1/webhooks", body())).json();
  const path = `/v1/webhooks/${id}`;
  const change = async (changed: Record<string, unknown>) =>
    (await owner.call("PATCH", path, changed)).json();
  expect(await change({ events: ["*"], url: "https://other.example.com/" })).toMatchObject({
    events: ["*"],
    url: "https://other.example.com/",
    enabled: true,
  });
  expect(await change({ enabled: false })).toMatchObject({
    enabled: false,
    disabled_by: "request",
  });
  expect(await change({})).toMatchObject({ enabled: false, events: ["*"] });
  expect(await change({ enabled: true })).toMatchObject({ enabled: true, disabled_at: null });
  for (const wrong of [
    { events: [] },
    { events: ["x"] },
    { enabled: null },
    { secret: "0123456789abcdef" },
  ]) {
    await expectError(await owner.call("PATCH", path, wrong), 400, "invalid_body");
  }
  const deleted = await owner.call("DELETE", path);
  expect(await deleted.json()).toEqual({ id, deleted: true });
  await expectError(await owner.call("DELETE", path), 404, "webhook_not_found");
  await expectError(await owner.call("GET", path), 404, "webhook_not_found");
});

test("the list is paged, newest first, and tells how many there are", async () => {
  const fresh = await addHookOwner(gateway);
  for (let i = 0; i < 3; i++)
    await fresh.call("POST", "/v1/webhooks", body({ description: `${i}` }));
  const page = async (query: string) => (await fresh.call("GET", `/v1/webhooks${query}`)).json();
  const first = await page("?limit=2");
  expect(first.total).toBe(3);
  expect(first.data.map((hook: { description: string }) => hook.description)).toEqual(["2", "1"]);
  expect((await page("?limit=2&offset=2")).data).toHaveLength(1);
  for (const query of ["?limit=0", "?limit=1e2", "?limit=x", "?offset=-1", "?more=1"]) {
    await expectError(await fresh.call("GET", `/v1/webhooks${query}`), 400, "invalid_query");
  }
});

test("400 for what cannot be tested, and for a page of deliveries that is none", async () => {
  const { id } = await (await owner.call("POST", "/v1/webhooks", body())).json();
  for (const wrong of [
    { type: "*" },
    { type: "key.made" },
    { type: 1 },
    { type: "key.created", more: 1 },
  ]) {
    await expectError(
      await owner.call("POST", `/v1/webhooks/${id}/test`, wrong),
      400,
      "invalid_body",
    );
  }
  for (const query of ["?after=x", "?after=dlv_ffffffffffffffff", "?status=lost", "?limit=0"]) {
    const refused = await owner.call("GET", `/v1/webhooks/${id}/deliveries${query}`);
    await expectError(refused, 400, "invalid_query");
  }
});

test("ids of deliveries tell nothing, page the list, and those of before the upgrade are understood", async () => {
  const fresh = await addHookOwner(gateway);
  const { sql } = gateway;
  const { id } = await (
    await fresh.call("POST", "/v1/webhooks", body({ events: ["key.updated"], enabled: false }))
  ).json();
  const path = `/v1/webhooks/${id}/deliveries`;
  await sql`INSERT INTO deliveries (webhook_id, outbox_id, sequence, event_id, event_type)
    SELECT ${id}, n, n, 'evt_' || n, 'key.updated' FROM generate_series(1, 5) AS n`;
  const page = async (query: string) => (await fresh.call("GET", `${path}${query}`)).json();
  const { data } = await page("?limit=1000");
  const ids: string[] = data.map((delivery: { id: string }) => delivery.id);
  for (const one of ids) expect(one).toMatch(/^dlv_[0-9a-f]{32}$/);
  // Numbers that follow one another have nothing in common.
  expect(new Set(ids.map((one) => one.slice(0, 12))).size).toBe(5);
  const next = await page(`?limit=2&after=${ids[1]}`);
  expect(next.data.map((delivery: { id: string }) => delivery.id)).toEqual(ids.slice(2, 4));
  expect(next.has_more).toBeTrue();

  const plain = "dlv_0000000000000003";
  const foreign = await (await fresh.call("POST", "/v1/webhooks", body())).json();
  for (const unknown of [plain, "dlv_00000000000000000000000000000003", "dlv_x"]) {
    await expectError(await fresh.call("GET", `${path}?after=${unknown}`), 400, "invalid_query");
  }
  const elsewhere = `/v1/webhooks/${foreign.id}/deliveries?after=${ids[0]}`;
  await expectError(await fresh.call("GET", elsewhere), 400, "invalid_query");

  await sql`UPDATE webhooks SET plain_delivery_ids_up_to = 3 WHERE id = ${id}`;
  expect((await page(`?after=${plain}`)).data).toHaveLength(2);
  const later = await fresh.call("GET", `${path}?after=dlv_0000000000000004`);
  await expectError(later, 400, "invalid_query");
});

describe("the number of an organization's webhooks", () => {
  const add = (to: HookOwner) => to.call("POST", "/v1/webhooks", body());

  test("is 100 at most, unless the operator has set it otherwise", async () => {
    const fresh = await addHookOwner(gateway);
    const { sql } = gateway;
    const { id } = await (await add(fresh)).json();
    await sql`INSERT INTO webhooks (id, organization_id, url, events, enabled, secret, created_at)
      SELECT id || '_' || n, organization_id, url, events, enabled, secret, created_at
      FROM webhooks, generate_series(1, 98) AS n WHERE id = ${id}`;
    expect((await add(fresh)).status).toBe(201);
    await expectError(await add(fresh), 403, "quota_exceeded");
    expect((await fresh.call("DELETE", `/v1/webhooks/${id}`)).status).toBe(200);
    expect((await add(fresh)).status).toBe(201);
    await expectError(await add(fresh), 403, "quota_exceeded");
    await sql`UPDATE organizations SET max_webhooks = 101 WHERE id = ${fresh.organizationId}`;
    expect((await add(fresh)).status).toBe(201);
    await sql`UPDATE organizations SET max_webhooks = 0 WHERE id = ${fresh.organizationId}`;
    await expectError(await add(fresh), 403, "quota_exceeded");
  });

  test("is exact, however many are created at the same time", async () => {
    const fresh = await addHookOwner(gateway);
    await gateway.sql`UPDATE organizations SET max_webhooks = 3 WHERE id = ${fresh.organizationId}`;
    const statuses = await Promise.all(
      Array.from({ length: 24 }, async () => (await add(fresh)).status),
    );
    expect(statuses.filter((status) => status === 201)).toHaveLength(3);
    expect(statuses.filter((status) => status === 403)).toHaveLength(21);
    expect((await (await fresh.call("GET", "/v1/webhooks")).json()).total).toBe(3);
  });
});

describe("who may", () => {
  const calls = (path: string): [string, string, unknown?][] => [
    ["GET", path],
    ["PATCH", path, { enabled: false }],
    ["DELETE", path],
    ["POST", `${path}/test`, { type: "key.created" }],
    ["POST", `${path}/rotate_secret`],
    ["GET", `${path}/deliveries`],
    ["POST", `${path}/deliveries/dlv_0000000000000001/redeliver`],
  ];

  test("404 for another organization's webhook, and for none, in every call", async () => {
    const { id } = await (await owner.call("POST", "/v1/webhooks", body())).json();
    const other = await addHookOwner(gateway);
    for (const path of [
      `/v1/webhooks/${id}`,
      UNKNOWN,
      "/v1/webhooks/x",
      "/v1/webhooks/%F0%9F%8C%8D",
    ]) {
      for (const [method, target, content] of calls(path)) {
        await expectError(await other.call(method, target, content), 404, "webhook_not_found");
      }
    }
    expect((await (await other.call("GET", "/v1/webhooks")).json()).total).toBe(0);
    expect((await owner.call("GET", `/v1/webhooks/${id}`)).status).toBe(200);
    // No id holds a NUL, and no database takes one.
    for (const [method, target, content] of calls("/v1/webhooks/%00")) {
      expect((await owner.call(method, target, content)).status).toBe(404);
    }
  });

  test("401 without a key, 403 without the scope, and a secret key with it may", async () => {
    const without = await addSecretKey(gateway, { scopes: ["chat:completions", "keys:manage"] });
    const within = await addSecretKey(gateway, { scopes: ["webhooks:manage"] });
    for (const [method, target, content] of [
      ...calls(UNKNOWN),
      ["POST", "/v1/webhooks", body()] as const,
      ["GET", "/v1/webhooks"] as const,
    ]) {
      const keyless = await gateway.request(method, target, content, { key: "none" });
      await expectError(keyless, 401, "invalid_api_key");
      const scopeless = await gateway.request(method, target, content, { key: without });
      await expectError(scopeless, 403, "missing_scope");
    }
    const created = await gateway.request("POST", "/v1/webhooks", body(), { key: within });
    expect(created.status).toBe(201);
  });
});
