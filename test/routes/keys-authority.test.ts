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
const isoOf = (ms: number) => new Date(ms).toISOString();

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

  test("cannot widen another key in any respect, and can narrow it", async () => {
    const { secret } = await addKey({ rateLimitRpm: 1_000, scopes: MANAGER });
    const { id } = await addKey({
      rateLimitRpm: 5,
      dailyBudgetNano: 5_000_000_000n,
      monthlyBudgetNano: 5_000_000_000n,
      allowedModels: ["sandbox/chat"],
      expiresAtMs: FUTURE_MS,
      scopes: ["files:read"],
    });
    const widening = [
      { rate_limit_rpm: 6 },
      { rate_limit_rpm: null },
      { daily_budget_usd: 5.000000001 },
      { daily_budget_usd: null },
      { monthly_budget_usd: 6 },
      { monthly_budget_usd: null },
      { allowed_models: ["sandbox/chat", "sandbox/embed"] },
      { allowed_models: ["sandbox/embed"] },
      { allowed_models: null },
      { expires_at: isoOf(FUTURE_MS + 1_000) },
      { expires_at: null },
      { scopes: ["files:read", "chat:completions"] },
    ];
    for (const body of widening) {
      const response = await change(secret, id, body);
      expect({ body, status: response.status }).toEqual({ body, status: 403 });
    }
    const narrowing = [
      { rate_limit_rpm: 4 },
      { daily_budget_usd: 4 },
      { monthly_budget_usd: 0 },
      { expires_at: isoOf(FUTURE_MS - 1_000) },
      { is_active: false },
      { name: crypto.randomUUID() },
    ];
    for (const body of narrowing) {
      const response = await change(secret, id, body);
      expect({ body, status: response.status }).toEqual({ body, status: 200 });
    }
    await expectError(await change(secret, id, { is_active: true }), 403, "key_not_permitted");
  });
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
