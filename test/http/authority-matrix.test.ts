import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ApiKeySettings, SCOPES, type Scope } from "../../src/lib/api-key-record.ts";
import { addKeyOf, addSecretKey } from "../support/api-keys.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

/*
 * Who may call which route. A route that is mounted and missing here fails the test: who adds a route says
 * here who may call it.
 */
type Authority =
  /** Anyone, without a key. */
  | "public"
  /** Any key of an organization, whatever its scopes. */
  | "self"
  /** Operator keys alone. */
  | "operator"
  /** A secret key with the scope; a management key is of the wrong kind. */
  | { readonly secret: Scope }
  /** A management key, or a secret key with the scope. */
  | { readonly either: Scope }
  /** The same, but for secret keys that are limited themselves. */
  | { readonly unlimited: Scope };

const AUTHORITY: Readonly<Record<string, Authority>> = {
  "POST /v1/chat/completions": { secret: "chat:completions" },
  "POST /v1/audio/speech": { secret: "audio" },
  "POST /v1/audio/transcriptions": { secret: "audio" },
  "POST /v1/audio/translations": { secret: "audio" },
  "POST /v1/embeddings": { secret: "embeddings" },
  "POST /v1/rerank": { secret: "embeddings" },
  "POST /v1/moderations": { secret: "chat:completions" },
  "POST /v1/messages": { secret: "chat:completions" },
  "POST /v1/messages/count_tokens": { secret: "chat:completions" },
  "POST /v1/responses": { secret: "responses" },
  "POST /v1/responses/input_tokens": { secret: "responses" },
  "GET /v1/responses/{id}": { secret: "responses" },
  "DELETE /v1/responses/{id}": { secret: "responses" },
  "GET /v1/responses/{id}/input_items": { secret: "responses" },
  "POST /v1/conversations": { secret: "responses" },
  "GET /v1/conversations/{id}": { secret: "responses" },
  "POST /v1/conversations/{id}": { secret: "responses" },
  "DELETE /v1/conversations/{id}": { secret: "responses" },
  "GET /v1/conversations/{id}/items": { secret: "responses" },
  "POST /v1/conversations/{id}/items": { secret: "responses" },
  "GET /v1/conversations/{id}/items/{item_id}": { secret: "responses" },
  "DELETE /v1/conversations/{id}/items/{item_id}": { secret: "responses" },
  "POST /v1/responses/compact": { secret: "responses" },
  "POST /v1/responses/{id}/cancel": { secret: "responses" },
  "GET /v1/models": { either: "models:read" },
  "GET /v1/models/count": { either: "models:read" },
  "GET /v1/models/search": { either: "models:read" },
  "GET /v1/models/compare": { either: "models:read" },
  "GET /v1/models/{id}": { either: "models:read" },
  "DELETE /v1/models/{id}": { either: "models:write" },
  "GET /v1/key": "self",
  "GET /v1/keys": { unlimited: "keys:manage" },
  "POST /v1/keys": { unlimited: "keys:manage" },
  // A limited key sees itself; this asks for another one.
  "GET /v1/keys/{id}": { unlimited: "keys:manage" },
  "PATCH /v1/keys/{id}": { unlimited: "keys:manage" },
  "DELETE /v1/keys/{id}": { unlimited: "keys:manage" },
  "GET /v1/budgets": { unlimited: "keys:manage" },
  "POST /v1/budgets": { unlimited: "keys:manage" },
  "GET /v1/budgets/{id}": { unlimited: "keys:manage" },
  "PATCH /v1/budgets/{id}": { unlimited: "keys:manage" },
  "DELETE /v1/budgets/{id}": { unlimited: "keys:manage" },
  "GET /v1/credits": { either: "billing:read" },
  "PATCH /v1/credits": { either: "billing:write" },
  "GET /v1/credits/transactions": { either: "billing:read" },
  "GET /v1/usage": { either: "usage:read" },
  "GET /v1/usage/latency": { unlimited: "usage:read" },
  "POST /v1/credits/topup": { either: "billing:write" },
  "GET /v1/billing/payment_methods": { either: "billing:read" },
  "POST /v1/billing/payment_methods": { either: "billing:write" },
  "PATCH /v1/billing/payment_methods/{id}": { either: "billing:write" },
  "DELETE /v1/billing/payment_methods/{id}": { either: "billing:write" },
  "GET /v1/billing/test_payments/{id}/{token}": "public",
  "POST /v1/billing/test_payments/{id}/{token}": "public",
  "GET /v1/billing/subscription": { either: "billing:read" },
  "POST /v1/billing/subscription": { either: "billing:write" },
  "GET /v1/requests": { either: "usage:read" },
  "GET /v1/requests/{id}": { either: "usage:read" },
  "GET /v1/organization": { either: "usage:read" },
  "DELETE /v1/cache": { either: "cache:manage" },
  "GET /v1/provider_keys": { either: "provider_keys:manage" },
  "POST /v1/provider_keys": { unlimited: "provider_keys:manage" },
  "DELETE /v1/provider_keys/{id}": { unlimited: "provider_keys:manage" },
  "GET /v1/guardrails": { either: "guardrails:manage" },
  "POST /v1/guardrails": { either: "guardrails:manage" },
  "GET /v1/guardrails/{id}": { either: "guardrails:manage" },
  "PATCH /v1/guardrails/{id}": { either: "guardrails:manage" },
  "DELETE /v1/guardrails/{id}": { either: "guardrails:manage" },
  "GET /v1/presets": { either: "presets:manage" },
  "POST /v1/presets": { either: "presets:manage" },
  "GET /v1/presets/{id}": { either: "presets:manage" },
  "PATCH /v1/presets/{id}": { either: "presets:manage" },
  "DELETE /v1/presets/{id}": { either: "presets:manage" },
  "GET /v1/webhooks": { either: "webhooks:manage" },
  "POST /v1/webhooks": { unlimited: "webhooks:manage" },
  "GET /v1/webhooks/{id}": { either: "webhooks:manage" },
  "PATCH /v1/webhooks/{id}": { unlimited: "webhooks:manage" },
  "DELETE /v1/webhooks/{id}": { unlimited: "webhooks:manage" },
  "POST /v1/webhooks/{id}/rotate_secret": { unlimited: "webhooks:manage" },
  "POST /v1/webhooks/{id}/test": { unlimited: "webhooks:manage" },
  "GET /v1/webhooks/{id}/deliveries": { either: "webhooks:manage" },
  "POST /v1/webhooks/{id}/deliveries/{delivery_id}/redeliver": { unlimited: "webhooks:manage" },
  "POST /v1/images/generations": { secret: "images" },
  "POST /v1/images/edits": { secret: "images" },
  "POST /v1/images/variations": { secret: "images" },
  "POST /v1/files": { secret: "files:write" },
  "GET /v1/files": { secret: "files:read" },
  "GET /v1/files/{id}": { secret: "files:read" },
  "GET /v1/files/{id}/content": { secret: "files:read" },
  "GET /v1/files/{id}/download_url": { secret: "files:read" },
  "GET /v1/files/{id}/download": "public",
  "GET /v1/media/{id}": "public",
  "DELETE /v1/files/{id}": { secret: "files:write" },
  "POST /v1/vector_stores": { secret: "files:write" },
  "GET /v1/vector_stores": { secret: "files:read" },
  "GET /v1/vector_stores/{id}": { secret: "files:read" },
  "POST /v1/vector_stores/{id}": { secret: "files:write" },
  "DELETE /v1/vector_stores/{id}": { secret: "files:write" },
  "POST /v1/vector_stores/{id}/search": { secret: "files:read" },
  "POST /v1/vector_stores/{id}/files": { secret: "files:write" },
  "GET /v1/vector_stores/{id}/files": { secret: "files:read" },
  "GET /v1/vector_stores/{id}/files/{file}": { secret: "files:read" },
  "POST /v1/vector_stores/{id}/files/{file}": { secret: "files:write" },
  "DELETE /v1/vector_stores/{id}/files/{file}": { secret: "files:write" },
  "GET /v1/vector_stores/{id}/files/{file}/content": { secret: "files:read" },
  "POST /v1/vector_stores/{id}/file_batches": { secret: "files:write" },
  "GET /v1/vector_stores/{id}/file_batches/{batch}": { secret: "files:read" },
  "POST /v1/vector_stores/{id}/file_batches/{batch}/cancel": { secret: "files:write" },
  "GET /v1/vector_stores/{id}/file_batches/{batch}/files": { secret: "files:read" },
  "POST /v1/batches": { secret: "files:write" },
  "GET /v1/batches": { secret: "files:read" },
  "GET /v1/batches/{id}": { secret: "files:read" },
  "POST /v1/batches/{id}/cancel": { secret: "files:write" },
  "POST /v1/fine_tuning/jobs": { secret: "fine_tuning" },
  "GET /v1/fine_tuning/jobs": { secret: "fine_tuning" },
  "GET /v1/fine_tuning/jobs/{id}": { secret: "fine_tuning" },
  "GET /v1/fine_tuning/jobs/{id}/events": { secret: "fine_tuning" },
  "POST /v1/fine_tuning/jobs/{id}/cancel": { secret: "fine_tuning" },
  "GET /v1/admin/organizations": "operator",
  "POST /v1/admin/organizations": "operator",
  "GET /v1/admin/organizations/{id}": "operator",
  "PATCH /v1/admin/organizations/{id}": "operator",
  "POST /v1/admin/organizations/{id}/adjustments": "operator",
  "POST /v1/admin/organizations/{id}/refunds": "operator",
  "GET /v1/admin/providers": "operator",
  "GET /healthz": "public",
  "GET /readyz": "public",
  "GET /metrics": "public",
  "GET /openapi.json": "public",
  "GET /docs": "public",
  "GET /docs/scalar.js": "public",
};

let gateway: TestGateway;
let routes: string[];
const keys: Record<string, string> = {};
const scopedKeys = new Map<string, { with: string; without: string; limited: string[] }>();

const LIMITS: readonly Partial<ApiKeySettings>[] = [
  { rateLimitRpm: 1_000_000 },
  { dailyBudgetNano: 1_000_000_000n },
  { monthlyBudgetNano: 1_000_000_000n },
  { allowedModels: ["sandbox/chat"] },
  { expiresAtMs: Date.now() + 3_600_000 },
];

beforeAll(async () => {
  gateway = await startTestGateway();
  const document = (await (await fetch(`${gateway.baseUrl}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, unknown>>;
  };
  routes = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
  );
  keys.management = gateway.managementKey;
  keys.narrowManagement = await addKeyOf("management", gateway, { scopes: ["cache:manage"] });
  keys.secret = gateway.secretKey;
  keys.operator = await addOperator(gateway);
  for (const scope of SCOPES) {
    scopedKeys.set(scope, {
      with: await addSecretKey(gateway, { scopes: [scope] }),
      without: await addSecretKey(gateway, { scopes: SCOPES.filter((one) => one !== scope) }),
      limited: await Promise.all(
        LIMITS.map((limit) => addSecretKey(gateway, { scopes: [scope], ...limit })),
      ),
    });
  }
});
afterAll(() => gateway.stop());

const AUTHORITY_CODES = [
  "missing_api_key",
  "invalid_api_key",
  "missing_scope",
  "wrong_key_kind",
  "key_not_permitted",
];

/** The code with which a call is refused for lack of authority; undefined where it goes on to what follows. */
async function refusal(route: string, key: string | undefined): Promise<string | undefined> {
  const [method, path] = route.split(" ") as [string, string];
  const response = await fetch(gateway.baseUrl + path.replaceAll(/\{\w+\}/g, "none_1"), {
    method,
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    redirect: "manual",
  });
  const text = await response.text();
  if (response.status !== 401 && response.status !== 403) return undefined;
  const { error } = JSON.parse(text) as { error: { code: string } };
  return AUTHORITY_CODES.includes(error.code) ? error.code : undefined;
}

test("every mounted route states its authority here, and nothing else is stated", () => {
  expect(routes.toSorted()).toEqual(Object.keys(AUTHORITY).toSorted());
});

test.each(Object.entries(AUTHORITY))("%s", async (route, authority) => {
  const seen: Record<string, string | undefined> = {};
  const wanted: Record<string, string | undefined> = {};
  const ask = async (name: string, key: string | undefined, code: string | undefined) => {
    wanted[name] = code;
    seen[name] = await refusal(route, key);
  };
  const isPublic = authority === "public";
  await ask("no key", undefined, isPublic ? undefined : "missing_api_key");
  await ask(
    "no such key",
    `gateway_sk_${"a".repeat(38)}`,
    isPublic ? undefined : "invalid_api_key",
  );
  const isOperator = authority === "operator";
  await ask("operator", keys.operator, isPublic || isOperator ? undefined : "wrong_key_kind");
  const forManagement =
    isOperator || (typeof authority === "object" && "secret" in authority)
      ? "wrong_key_kind"
      : undefined;
  await ask("management", keys.management, forManagement);
  await ask("management of one scope", keys.narrowManagement, forManagement);
  await ask("secret, all scopes", keys.secret, isOperator ? "wrong_key_kind" : undefined);
  for (const scope of SCOPES) {
    const scoped = scopedKeys.get(scope)!;
    if (typeof authority === "string") {
      await ask(`secret, ${scope}`, scoped.with, isOperator ? "wrong_key_kind" : undefined);
      continue;
    }
    const needed = Object.values(authority)[0];
    await ask(`secret, ${scope}`, scoped.with, scope === needed ? undefined : "missing_scope");
    if (scope !== needed) continue;
    await ask(`secret, without ${scope}`, scoped.without, "missing_scope");
    for (const [index, key] of scoped.limited.entries()) {
      const code = "unlimited" in authority ? "key_not_permitted" : undefined;
      await ask(`secret, limited in way ${index}`, key, code);
    }
  }
  expect(seen).toEqual(wanted);
});
