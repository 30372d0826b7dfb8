import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ApiKeySettings, SCOPES } from "../../src/lib/api-key-record.ts";
import { addKeyOf, addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const MANAGER = ["keys:manage", "chat:completions"] as const;
const FUTURE_MS = Date.now() + 3_600_000;

const send = (method: string, path: string, key: string, body?: unknown) =>
  gateway.request(method, path, body, { key });

const create = (key: string, body: Record<string, unknown> = {}) =>
  send("POST", "/v1/keys", key, { name: crypto.randomUUID(), ...body });

const change = (key: string, id: string, body: Record<string, unknown>) =>
  send("PATCH", `/v1/keys/${id}`, key, body);

async function addKey(settings: Partial<ApiKeySettings> = {}) {
  const name = crypto.randomUUID();
  const secret = await addSecretKey(gateway, { ...settings, name });
  const [row] = await gateway.sql<{ id: string }[]>`SELECT id FROM api_keys WHERE name = ${name}`;
  return { secret, id: row!.id };
}

async function idOfManagementKey(): Promise<string> {
  const [row] = await gateway.sql<{ id: string }[]>`SELECT id FROM api_keys
    WHERE organization_id = ${gateway.organizationId} AND kind = 'management'`;
  return row!.id;
}

describe("what a key grants", () => {
  test("a secret key cannot create a key with a scope that it lacks", async () => {
    const { secret } = await addKey({ scopes: MANAGER });
    const refused = await expectError(
      await create(secret, { scopes: ["chat:completions", "billing:read"] }),
      403,
      "key_not_permitted",
    );
    expect(refused.error).toMatchObject({ param: "scopes" });
    expect(refused.error.message).toContain("billing:read");
    expect((await create(secret, { scopes: ["chat:completions"] })).status).toBe(201);
  });

  test("omitted scopes are all that the creator has", async () => {
    const { secret } = await addKey({ scopes: MANAGER });
    for (const body of [{}, { scopes: null }]) {
      expect(await (await create(secret, body)).json()).toMatchObject({ scopes: [...MANAGER] });
    }
    expect(await (await create(gateway.managementKey)).json()).toMatchObject({
      scopes: [...SCOPES],
    });
  });

  test("a secret key cannot add a scope that it lacks to another key", async () => {
    const { secret } = await addKey({ scopes: MANAGER });
    const { id } = await addKey({ scopes: ["files:read"] });
    await expectError(
      await change(secret, id, { scopes: ["files:read", "images"] }),
      403,
      "key_not_permitted",
    );
    const granted = await change(secret, id, { scopes: ["files:read", "chat:completions"] });
    expect(granted.status).toBe(200);
  });

  test("a management key whose scopes are some grants no others, in a new key or an old one", async () => {
    const secret = await addKeyOf("management", gateway, { scopes: MANAGER });
    const { id } = await addKey({ scopes: ["files:read"] });
    const scopes = ["files:read", "images"];
    await expectError(await create(secret, { scopes }), 403, "key_not_permitted");
    await expectError(await change(secret, id, { scopes }), 403, "key_not_permitted");
    const granted = await change(secret, id, { scopes: ["files:read", "chat:completions"] });
    expect(granted.status).toBe(200);
  });
});

test("a management key is given no budget, rate or model list, and may be given an expiry", async () => {
  await addKeyOf("management", gateway, { name: "bookkeeper" });
  const listed = await send("GET", "/v1/keys?search=bookkeeper", gateway.managementKey);
  const [{ id }] = ((await listed.json()) as { data: [{ id: string }] }).data;
  for (const limit of [
    { rate_limit_rpm: 1 },
    { rate_limit_tpm: 1 },
    { daily_budget_usd: 0 },
    { monthly_budget_usd: 1 },
    { budget_includes_byok: true },
    { allowed_models: ["sandbox/chat"] },
  ]) {
    const [param] = Object.keys(limit);
    const refused = await change(gateway.managementKey, id, limit);
    expect(await expectError(refused, 400, "invalid_body")).toMatchObject({ error: { param } });
  }
  const expires = { expires_at: new Date(FUTURE_MS).toISOString(), daily_budget_usd: null };
  expect((await change(gateway.managementKey, id, expires)).status).toBe(200);
});

test("no key changes or deletes itself", async () => {
  const { secret, id } = await addKey({ scopes: MANAGER });
  const managementId = await idOfManagementKey();
  for (const [key, own] of [
    [secret, id],
    [gateway.managementKey, managementId],
  ] as const) {
    await expectError(await change(key, own, { name: "mine" }), 403, "key_not_permitted");
    await expectError(await send("DELETE", `/v1/keys/${own}`, key), 403, "key_not_permitted");
  }
});

describe("a secret key that is limited itself", () => {
  const limits: [string, Partial<ApiKeySettings>][] = [
    ["a rate limit", { rateLimitRpm: 1_000 }],
    ["a limit of tokens", { rateLimitTpm: 1_000_000 }],
    ["a daily budget", { dailyBudgetNano: 1_000_000_000n }],
    ["a monthly budget", { monthlyBudgetNano: 1_000_000_000n }],
    ["a model list", { allowedModels: ["sandbox/chat"] }],
    ["an expiry", { expiresAtMs: FUTURE_MS }],
  ];
  test.each(limits)("by %s cannot create keys", async (_, settings) => {
    const { secret } = await addKey({ ...settings, scopes: MANAGER });
    await expectError(await create(secret), 403, "key_not_permitted");
    await expectError(
      await create(secret, { rate_limit_rpm: 1, daily_budget_usd: 0 }),
      403,
      "key_not_permitted",
    );
  });

  test.each(limits)(
    "by %s can neither change nor delete a key, not even to narrow it",
    async (_, own) => {
      const { secret } = await addKey({ ...own, scopes: MANAGER });
      const { id } = await addKey({ scopes: ["files:read"] });
      for (const body of [
        { rate_limit_rpm: 1 },
        { rate_limit_rpm: null },
        { is_active: false },
        { name: crypto.randomUUID() },
        {},
      ]) {
        await expectError(await change(secret, id, body), 403, "key_not_permitted");
      }
      await expectError(await send("DELETE", `/v1/keys/${id}`, secret), 403, "key_not_permitted");
      expect((await send("GET", `/v1/keys/${id}`, gateway.managementKey)).status).toBe(200);
    },
  );

  test.each(limits)("by %s sees its own figures and those of no other key", async (_, own) => {
    const { secret, id: ownId } = await addKey({ ...own, scopes: MANAGER });
    const { id } = await addKey();
    await expectError(await send("GET", "/v1/keys", secret), 403, "key_not_permitted");
    for (const other of [id, await idOfManagementKey(), "key_none"]) {
      await expectError(await send("GET", `/v1/keys/${other}`, secret), 403, "key_not_permitted");
    }
    const seen = await send("GET", `/v1/keys/${ownId}`, secret);
    expect(await seen.json()).toMatchObject({ id: ownId, usage_today_usd: 0 });
  });

  test("is refused from the moment at which it is limited", async () => {
    const { secret, id } = await addKey({ scopes: MANAGER });
    expect((await create(secret)).status).toBe(201);
    expect((await change(gateway.managementKey, id, { daily_budget_usd: 1 })).status).toBe(200);
    await expectError(await create(secret), 403, "key_not_permitted");
    expect((await change(gateway.managementKey, id, { daily_budget_usd: null })).status).toBe(200);
    expect((await create(secret)).status).toBe(201);
  });

  test("can neither make, change or delete webhooks, nor read them", async () => {
    const { secret } = await addKey({ rateLimitRpm: 9, scopes: ["webhooks:manage"] });
    const body = { url: "https://example.com/x", events: ["key.created"] };
    const made = await send("POST", "/v1/webhooks", gateway.managementKey, body);
    const { id } = (await made.json()) as { id: string };
    for (const [method, path, sent] of [
      ["POST", "/v1/webhooks", body],
      ["PATCH", `/v1/webhooks/${id}`, { enabled: false }],
      ["DELETE", `/v1/webhooks/${id}`, undefined],
      ["POST", `/v1/webhooks/${id}/rotate_secret`, undefined],
      ["POST", `/v1/webhooks/${id}/test`, {}],
      ["GET", "/v1/webhooks", undefined],
      ["GET", `/v1/webhooks/${id}`, undefined],
      ["GET", `/v1/webhooks/${id}/deliveries`, undefined],
    ] as const) {
      await expectError(await send(method, path, secret, sent), 403, "key_not_permitted");
    }
  });
});

describe("a key with all scopes", () => {
  const storedScopes = async (id: string): Promise<string[]> => {
    const [row] = await gateway.sql<{ scopes: string[] }[]>`
      SELECT scopes FROM api_keys WHERE id = ${id}`;
    return row!.scopes;
  };
  const idOf = async (response: Response) => ((await response.json()) as { id: string }).id;

  test("holds those that come later too, and callers see their names alone", async () => {
    const { secret, id } = await addKey();
    // A scope that this version does not know by name stands for one that a later version adds.
    await gateway.sql`UPDATE api_keys SET scopes = '{keys:manage,*}' WHERE id = ${id}`;
    await gateway.sql`INSERT INTO changes (kind, object_id) VALUES ('api-key', ${id})`;
    expect((await send("GET", "/v1/credits", secret)).status).toBe(200);
    const shown = await send("GET", `/v1/keys/${id}`, gateway.managementKey);
    expect(await shown.json()).toMatchObject({ scopes: [...SCOPES] });
  });

  test("makes another one with scopes omitted, null or all named; a key that lacks one does not", async () => {
    for (const body of [{}, { scopes: null }, { scopes: [...SCOPES].reverse() }]) {
      expect(await storedScopes(await idOf(await create(gateway.secretKey, body)))).toContain("*");
    }
    const rest = SCOPES.filter((scope) => scope !== "cache:manage");
    const { secret } = await addKey({ scopes: rest });
    expect(await storedScopes(await idOf(await create(secret)))).toEqual([...rest]);
    await expectError(await create(secret, { scopes: [...SCOPES] }), 403, "key_not_permitted");
  });

  test("is not made by a key that lacks them out of one that holds the rest", async () => {
    const { secret } = await addKey({ scopes: ["keys:manage", "cache:manage"] });
    const { id } = await addKey({ scopes: SCOPES.filter((scope) => scope !== "cache:manage") });
    expect((await change(secret, id, { scopes: [...SCOPES] })).status).toBe(200);
    expect(await storedScopes(id)).not.toContain("*");
  });

  test("loses those to come with the first scope that is taken away", async () => {
    const { id } = await addKey();
    const rest = SCOPES.filter((scope) => scope !== "usage:read");
    expect((await change(gateway.managementKey, id, { scopes: rest })).status).toBe(200);
    expect(await storedScopes(id)).toEqual([...rest]);
  });

  test.each([
    "*",
    "Keys:Manage",
    "keys:manage ",
    "keys：manage",
    "ｋeys:manage",
    "keys:manage\u0000",
    "__proto__",
  ])("no request names a scope as %j", async (scope) => {
    const { id } = await addKey({ scopes: ["files:read"] });
    await expectError(
      await create(gateway.managementKey, { scopes: [scope] }),
      400,
      "invalid_body",
    );
    await expectError(
      await change(gateway.managementKey, id, { scopes: [scope] }),
      400,
      "invalid_body",
    );
  });
});

test("a scope that is taken from a key is not given back by one that lacks it, in the same moment", async () => {
  const { secret } = await addKey({ scopes: ["keys:manage"] });
  for (let round = 0; round < 20; round++) {
    const { id } = await addKey({ scopes: ["images", "audio"] });
    const narrowed = change(gateway.managementKey, id, { scopes: ["audio"] });
    const kept = change(secret, id, { scopes: ["images"] });
    const [narrow, keep] = await Promise.all([narrowed, kept]);
    expect(narrow.status).toBe(200);
    const { scopes } = (await (
      await send("GET", `/v1/keys/${id}`, gateway.managementKey)
    ).json()) as { scopes: string[] };
    // Whoever comes first: what was kept is narrowed then, or what was narrowed is not kept any more.
    expect(scopes).toEqual(["audio"]);
    expect([200, 403]).toContain(keep.status);
  }
});

describe("a management key", () => {
  test("cannot be touched by a secret key, whatever its scopes", async () => {
    const id = await idOfManagementKey();
    for (const body of [{ name: "taken over" }, { is_active: false }, { rate_limit_rpm: 1 }]) {
      await expectError(await change(gateway.secretKey, id, body), 403, "key_not_permitted");
    }
    await expectError(
      await send("DELETE", `/v1/keys/${id}`, gateway.secretKey),
      403,
      "key_not_permitted",
    );
    expect((await send("GET", "/v1/keys", gateway.managementKey)).status).toBe(200);
  });

  test("calls no model: 403 wrong_key_kind, whatever the body", async () => {
    const bodies = [
      { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }] },
      { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }], stream: true },
      { nonsense: true },
      "{not json",
    ];
    for (const body of bodies) {
      await expectError(
        await send("POST", "/v1/chat/completions", gateway.managementKey, body),
        403,
        "wrong_key_kind",
      );
    }
  });
});

describe("a missing scope is 403, before the body is read", () => {
  test.each([
    ["POST", "/v1/chat/completions", "chat:completions"],
    ["GET", "/v1/models", "models:read"],
    ["GET", "/v1/keys", "keys:manage"],
    ["POST", "/v1/keys", "keys:manage"],
    ["PATCH", "/v1/keys/key_1", "keys:manage"],
    ["DELETE", "/v1/keys/key_1", "keys:manage"],
    ["GET", "/v1/credits", "billing:read"],
    ["GET", "/v1/credits/transactions", "billing:read"],
  ])("%s %s needs %s", async (method, path, scope) => {
    const { secret } = await addKey({ scopes: SCOPES.filter((one) => one !== scope) });
    const body = method === "GET" || method === "DELETE" ? undefined : "{not json";
    const { error } = await expectError(
      await send(method, path, secret, body),
      403,
      "missing_scope",
    );
    expect(error.message).toContain(scope);
    const { secret: holder } = await addKey({ scopes: [scope] });
    expect((await send(method, path, holder, body)).status).not.toBe(403);
  });
});

test("a change of scopes holds for the very next request", async () => {
  const { secret, id } = await addKey({ scopes: ["billing:read"] });
  expect((await send("GET", "/v1/credits", secret)).status).toBe(200);
  expect((await change(gateway.managementKey, id, { scopes: ["files:read"] })).status).toBe(200);
  await expectError(await send("GET", "/v1/credits", secret), 403, "missing_scope");
});
