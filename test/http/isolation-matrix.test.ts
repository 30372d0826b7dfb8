import { afterAll, beforeAll, expect, test } from "bun:test";
import { AUTHORITY } from "./authority.ts";
import {
  CHAT,
  type IsolationGateway,
  MARK,
  type ObjectKind,
  type Objects,
  startIsolationGateway,
} from "./isolation-objects.ts";

/*
 * Every route, called with the keys of another organization: an object of the first one is 404, a list holds
 * nothing of it. A route that is mounted and missing here fails the test: who adds a route says here what of an
 * organization it reaches. Afterwards the same calls by the owner find every object, as it was.
 */

interface Call {
  /** Objects in the path, by the names of its parameters. */
  readonly path?: Readonly<Record<string, ObjectKind>>;
  readonly query?: (of: Objects) => string;
  readonly body?: (of: Objects) => object;
  readonly headers?: Readonly<Record<string, string>>;
  /** What the stranger gets, where that is not 404. */
  readonly status?: number;
}

/** Reaches no object of an organization, or only what the call itself brings. */
const NONE = "none";
/** An object that the path names. */
const at = (kind: ObjectKind, body?: object): Call => ({
  path: { id: kind },
  ...(body && { body: () => body }),
});
/** A list: 200, and nothing of another organization in it. */
const LIST: Call = { status: 200 };
const naming = (body: (of: Objects) => object, status = 404): Call => ({ body, status });
const filtered = (query: (of: Objects) => string, status = 200): Call => ({ query, status });

const inConversation = { id: "conversation", item_id: "item" } as const;
const inStore = { id: "store", file: "file" } as const;
const inBatch = { id: "store", batch: "batch" } as const;
const text = (of: Objects) => ({
  model: "sandbox/chat",
  input: "hi",
  conversation: of.conversation,
});
const chat = (more: (of: Objects) => object) => (of: Objects) => ({ ...CHAT, ...more(of) });
const turn = (more: (of: Objects) => object) => (of: Objects) => ({
  model: "sandbox/chat",
  input: "hi",
  ...more(of),
});

const ROWS: Readonly<Record<string, typeof NONE | readonly Call[]>> = {
  "POST /v1/chat/completions": [
    naming(chat(({ model }) => ({ model }))),
    naming(chat(({ preset }) => ({ preset }))),
    naming(chat(() => ({ preset: MARK }))),
    naming(chat(({ guardrail }) => ({ guardrail }))),
    { body: () => CHAT, headers: { "x-gateway-cache": "on" }, status: 200 },
  ],
  "POST /v1/messages": [
    naming(chat(({ model }) => ({ model, max_tokens: 10 }))),
    naming(chat(({ preset }) => ({ preset, max_tokens: 10 }))),
    naming(chat(({ guardrail }) => ({ guardrail, max_tokens: 10 }))),
  ],
  "POST /v1/messages/count_tokens": [naming(chat(({ model }) => ({ model })))],
  "POST /v1/responses": [
    naming(turn(({ model }) => ({ model }))),
    naming(turn(({ preset }) => ({ preset }))),
    naming(turn(({ guardrail }) => ({ guardrail }))),
    naming(text),
    naming(
      turn(({ response }) => ({ previous_response_id: response })),
      400,
    ),
    naming(
      turn(({ item }) => ({ input: [{ type: "item_reference", id: item }] })),
      400,
    ),
    naming(turn(({ store }) => ({ tools: [{ type: "file_search", vector_store_ids: [store] }] }))),
  ],
  "POST /v1/responses/input_tokens": [
    naming(turn(({ model }) => ({ model }))),
    naming(
      turn(({ response }) => ({ previous_response_id: response })),
      400,
    ),
    naming(text),
  ],
  "POST /v1/responses/compact": [
    naming(turn(({ model }) => ({ model }))),
    naming(
      turn(({ response }) => ({ previous_response_id: response })),
      400,
    ),
  ],
  "GET /v1/responses/{id}": [at("response"), at("background")],
  "DELETE /v1/responses/{id}": [at("response"), at("background")],
  "GET /v1/responses/{id}/input_items": [at("response")],
  "POST /v1/responses/{id}/cancel": [at("background")],
  "POST /v1/conversations": NONE,
  "GET /v1/conversations/{id}": [at("conversation")],
  "POST /v1/conversations/{id}": [at("conversation", { metadata: {} })],
  "DELETE /v1/conversations/{id}": [at("conversation")],
  "GET /v1/conversations/{id}/items": [at("conversation")],
  "POST /v1/conversations/{id}/items": [
    at("conversation", { items: [{ role: "user", content: "hi" }] }),
  ],
  "GET /v1/conversations/{id}/items/{item_id}": [{ path: inConversation }],
  "DELETE /v1/conversations/{id}/items/{item_id}": [{ path: inConversation }],
  "GET /v1/models": [LIST],
  "GET /v1/models/count": [LIST],
  "GET /v1/models/search": [LIST, filtered(({ model }) => `q=${encodeURIComponent(model)}`)],
  "GET /v1/models/compare": [filtered(({ model }) => `models=${encodeURIComponent(model)}`, 404)],
  "GET /v1/models/{id}": [at("model")],
  "DELETE /v1/models/{id}": [at("model")],
  "GET /v1/key": [LIST],
  "GET /v1/keys": [LIST],
  "POST /v1/keys": [naming(({ team }) => ({ name: "taken", team_id: team }))],
  "GET /v1/keys/{id}": [at("key")],
  "PATCH /v1/keys/{id}": [at("key", { rate_limit_rpm: 60 })],
  "DELETE /v1/keys/{id}": [at("key")],
  "GET /v1/credits": [LIST],
  "GET /v1/credits/transactions": [
    filtered(() => "type=usage"),
    filtered(({ key }) => `key_id=${key}`),
    filtered(({ model }) => `model=${encodeURIComponent(model)}`),
    filtered(({ transaction }) => `search=${transaction}`),
    filtered(({ request }) => `search=${request}&format=csv`),
    filtered(() => "format=csv"),
  ],
  "PATCH /v1/credits": [naming(({ method }) => ({ payment_method_id: method }))],
  "POST /v1/credits/topup": [
    naming(({ method }) => ({ amount_usd: 5, payment_method_id: method })),
  ],
  "GET /v1/billing/payment_methods": [LIST],
  "POST /v1/billing/payment_methods": NONE,
  "PATCH /v1/billing/payment_methods/{id}": [at("method", { is_default: true })],
  "DELETE /v1/billing/payment_methods/{id}": [at("method")],
  "GET /v1/billing/payments": [LIST],
  "GET /v1/billing/statements": [LIST],
  "GET /v1/billing/statements/{month}": [{ path: { month: "month" } }],
  // Of the payer, who has the id of the payment.
  "GET /v1/billing/test_payments/{id}/{token}": NONE,
  "POST /v1/billing/test_payments/{id}/{token}": NONE,
  "GET /v1/billing/subscription": [LIST],
  "POST /v1/billing/subscription": NONE,
  "GET /v1/usage/latency": [LIST],
  "GET /v1/usage": [
    filtered(() => "group_by=model,key,provider,user"),
    filtered(() => "group_by=team,member"),
    filtered(({ team }) => `group_by=team&team_id=${team}`),
    filtered(({ key }) => `group_by=key&key_id=${key}`),
    filtered(({ model }) => `group_by=model&model=${encodeURIComponent(model)}`),
  ],
  "GET /v1/requests": [
    filtered(({ key }) => `key_id=${key}`),
    filtered(({ model }) => `status=200&model=${encodeURIComponent(model)}`),
    filtered(({ request }) => `after=${request}`, 400),
  ],
  "GET /v1/requests/{id}": [at("request")],
  "GET /v1/organization": [LIST],
  "GET /v1/audit_log": [LIST, filtered(({ key }) => `object_id=${key}`)],
  // Purges what the calling organization keeps; the test looks at what it leaves.
  "DELETE /v1/cache": NONE,
  "GET /v1/provider_keys": [LIST],
  "POST /v1/provider_keys": NONE,
  "DELETE /v1/provider_keys/{id}": [at("providerKey")],
  "GET /v1/budgets": [LIST],
  "POST /v1/budgets": NONE,
  "GET /v1/budgets/{id}": [at("budget")],
  "PATCH /v1/budgets/{id}": [at("budget", { daily_budget_usd: 0 })],
  "DELETE /v1/budgets/{id}": [at("budget")],
  "GET /v1/teams": [LIST],
  "POST /v1/teams": NONE,
  "GET /v1/teams/{id}": [at("team")],
  "PATCH /v1/teams/{id}": [at("team", { daily_budget_usd: 5 })],
  "DELETE /v1/teams/{id}": [at("team")],
  "GET /v1/members": [LIST],
  "GET /v1/members/{id}": [at("member")],
  "PATCH /v1/members/{id}": [at("member", { role: "viewer" })],
  "DELETE /v1/members/{id}": [at("member")],
  "GET /v1/invitations": [LIST],
  "POST /v1/invitations": [
    naming(({ team }) => ({ email: "guest@example.com", role: "viewer", team_ids: [team] })),
  ],
  "DELETE /v1/invitations/{id}": [at("invitation")],
  "GET /v1/scim_tokens": [LIST],
  "POST /v1/scim_tokens": NONE,
  "GET /v1/guardrails": [LIST],
  "POST /v1/guardrails": NONE,
  "GET /v1/guardrails/{id}": [at("guardrail")],
  "PATCH /v1/guardrails/{id}": [at("guardrail", { name: MARK })],
  "DELETE /v1/guardrails/{id}": [at("guardrail")],
  "GET /v1/presets": [LIST],
  "POST /v1/presets": NONE,
  "GET /v1/presets/{id}": [at("preset")],
  "PATCH /v1/presets/{id}": [at("preset", { name: MARK })],
  "DELETE /v1/presets/{id}": [at("preset")],
  "GET /v1/alert_channels": [LIST],
  "POST /v1/alert_channels": NONE,
  "GET /v1/alert_channels/{id}": [at("alertChannel")],
  "PATCH /v1/alert_channels/{id}": [at("alertChannel", { name: MARK })],
  "DELETE /v1/alert_channels/{id}": [at("alertChannel")],
  "POST /v1/alert_channels/{id}/test": [at("alertChannel")],
  "GET /v1/webhooks": [LIST],
  "POST /v1/webhooks": NONE,
  "GET /v1/webhooks/{id}": [at("webhook")],
  "PATCH /v1/webhooks/{id}": [at("webhook", { description: MARK })],
  "DELETE /v1/webhooks/{id}": [at("webhook")],
  "POST /v1/webhooks/{id}/rotate_secret": [at("webhook")],
  "POST /v1/webhooks/{id}/test": [at("webhook", { type: "key.created" })],
  "GET /v1/webhooks/{id}/deliveries": [at("webhook")],
  "POST /v1/webhooks/{id}/deliveries/{delivery_id}/redeliver": [
    { path: { id: "webhook", delivery_id: "delivery" } },
  ],
  "POST /v1/embeddings": [naming(({ preset }) => ({ preset, input: "hi" }))],
  "POST /v1/rerank": [naming(({ preset }) => ({ preset, query: "hi", documents: ["hi"] }))],
  "POST /v1/moderations": [
    naming(({ preset }) => ({ model: "sandbox/moderation", preset, input: "hi" })),
  ],
  "POST /v1/images/generations": [
    naming(({ guardrail }) => ({ model: "sandbox/image", prompt: "hi", guardrail })),
  ],
  "POST /v1/images/edits": NONE,
  "POST /v1/images/variations": NONE,
  "POST /v1/audio/speech": [
    naming(({ guardrail }) => ({ model: "sandbox/tts", input: "hi", voice: "alloy", guardrail })),
  ],
  "POST /v1/audio/transcriptions": NONE,
  "POST /v1/audio/translations": NONE,
  "POST /v1/batches": [
    naming(({ requests }) => ({
      ...{ input_file_id: requests, endpoint: "/v1/chat/completions" },
      completion_window: "24h",
    })),
  ],
  "GET /v1/batches": [LIST, filtered(({ requestBatch }) => `after=${requestBatch}`, 400)],
  "GET /v1/batches/{id}": [at("requestBatch")],
  "POST /v1/batches/{id}/cancel": [at("requestBatch")],
  "POST /v1/files": NONE,
  "GET /v1/files": [LIST, filtered(({ file }) => `after=${file}`)],
  "GET /v1/files/{id}": [at("file")],
  "GET /v1/files/{id}/content": [at("file")],
  "GET /v1/files/{id}/download_url": [at("file")],
  // Without its proof the link is good for no one.
  "GET /v1/files/{id}/download": [
    { path: { id: "file" }, query: () => `expires=9999999999&signature=${"0".repeat(64)}` },
  ],
  "DELETE /v1/files/{id}": [at("file")],
  // The id, which cannot be guessed, is what gives access.
  "GET /v1/media/{id}": NONE,
  "POST /v1/vector_stores": [naming(({ file }) => ({ file_ids: [file] }))],
  "GET /v1/vector_stores": [LIST, filtered(({ store }) => `after=${store}`)],
  "GET /v1/vector_stores/{id}": [at("store")],
  "POST /v1/vector_stores/{id}": [at("store", { name: MARK })],
  "DELETE /v1/vector_stores/{id}": [at("store")],
  "POST /v1/vector_stores/{id}/search": [at("store", { query: MARK })],
  "POST /v1/vector_stores/{id}/files": [
    { path: { id: "store" }, body: ({ file }) => ({ file_id: file }) },
  ],
  "GET /v1/vector_stores/{id}/files": [at("store")],
  "GET /v1/vector_stores/{id}/files/{file}": [{ path: inStore }],
  "POST /v1/vector_stores/{id}/files/{file}": [{ path: inStore, body: () => ({ attributes: {} }) }],
  "DELETE /v1/vector_stores/{id}/files/{file}": [{ path: inStore }],
  "GET /v1/vector_stores/{id}/files/{file}/content": [{ path: inStore }],
  "POST /v1/vector_stores/{id}/file_batches": [
    { path: { id: "store" }, body: ({ file }) => ({ file_ids: [file] }) },
  ],
  "GET /v1/vector_stores/{id}/file_batches/{batch}": [{ path: inBatch }],
  "POST /v1/vector_stores/{id}/file_batches/{batch}/cancel": [{ path: inBatch }],
  "GET /v1/vector_stores/{id}/file_batches/{batch}/files": [{ path: inBatch }],
  "POST /v1/fine_tuning/jobs": [
    naming(({ file }) => ({ model: "sandbox/chat-2026-01-01", training_file: file }), 400),
  ],
  "GET /v1/fine_tuning/jobs": [LIST, filtered(({ job }) => `after=${job}`, 400)],
  "GET /v1/fine_tuning/jobs/{id}": [at("job")],
  "GET /v1/fine_tuning/jobs/{id}/events": [
    at("job"),
    { path: { id: "job" }, headers: { accept: "text/event-stream" } },
  ],
  "POST /v1/fine_tuning/jobs/{id}/cancel": [at("job")],
  "GET /v1/admin/organizations": NONE,
  "POST /v1/admin/organizations": NONE,
  "GET /v1/admin/organizations/{id}": NONE,
  "PATCH /v1/admin/organizations/{id}": NONE,
  "POST /v1/admin/organizations/{id}/adjustments": NONE,
  "POST /v1/admin/organizations/{id}/refunds": NONE,
  "GET /v1/admin/usage": NONE,
  "GET /v1/admin/providers": NONE,
  "POST /v1/admin/providers": NONE,
  "GET /v1/admin/providers/{id}": NONE,
  "PATCH /v1/admin/providers/{id}": NONE,
  "DELETE /v1/admin/providers/{id}": NONE,
  "POST /v1/admin/providers/{id}/test": NONE,
  "GET /v1/admin/models": NONE,
  "POST /v1/admin/models": NONE,
  "GET /v1/admin/models/{id}": NONE,
  "PATCH /v1/admin/models/{id}": NONE,
  "DELETE /v1/admin/models/{id}": NONE,
  "POST /v1/admin/models/{id}/test": NONE,
  "GET /v1/admin/aliases": NONE,
  "POST /v1/admin/aliases": NONE,
  "GET /v1/admin/aliases/{id}": NONE,
  "PATCH /v1/admin/aliases/{id}": NONE,
  "DELETE /v1/admin/aliases/{id}": NONE,
  "POST /v1/admin/aliases/{id}/test": NONE,
  "GET /v1/admin/prices": NONE,
  "POST /v1/admin/prices": NONE,
  "DELETE /v1/admin/prices/{id}": NONE,
  "GET /v1/admin/identity_providers": NONE,
  "POST /v1/admin/identity_providers": NONE,
  "GET /v1/admin/identity_providers/{id}": NONE,
  "PATCH /v1/admin/identity_providers/{id}": NONE,
  "DELETE /v1/admin/identity_providers/{id}": NONE,
  "GET /v1/admin/operators": NONE,
  "POST /v1/admin/operators": NONE,
  "DELETE /v1/admin/operators/{id}": NONE,
  "POST /v1/admin/password_links": NONE,
  "POST /v1/admin/organizations/{id}/invitations": NONE,
  "GET /v1/admin/audit_log": NONE,
  "GET /healthz": NONE,
  "GET /readyz": NONE,
  "GET /metrics": NONE,
  "GET /openapi.json": NONE,
  "GET /docs/api-reference": NONE,
  "GET /docs/scalar.js": NONE,
};

const CALLS = Object.entries(ROWS).flatMap(([route, calls]) =>
  calls === NONE ? [] : calls.map((call, nth) => ({ title: `${route} (${nth})`, route, call })),
);

let gateway: IsolationGateway;
beforeAll(async () => {
  gateway = await startIsolationGateway();
}, 60_000);
afterAll(() => gateway.stop());

function send(route: string, { path = {}, query, body, headers }: Call, key: string) {
  const { objects } = gateway;
  const [method, pattern] = route.split(" ") as [string, string];
  const place = pattern.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(objects[path[name]!]),
  );
  const url = query === undefined ? place : `${place}?${query(objects)}`;
  return gateway.request(method, url, body?.(objects), { key, ...(headers && { headers }) });
}

test("every mounted route states here what it reaches, and nothing else is stated", async () => {
  const document = (await (await fetch(`${gateway.baseUrl}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, unknown>>;
  };
  const routes = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(Object.keys(ROWS).toSorted()).toEqual(routes.toSorted());
});

/** Of the stranger, and of no other organization. */
function expectNothingOf(objects: Objects, answer: string, sent: string): void {
  for (const id of [...Object.values(objects), gateway.organizationId, MARK]) {
    if (!sent.includes(id)) expect(answer).not.toContain(id);
  }
}

function isForManagement(route: string): boolean {
  const authority = AUTHORITY[route];
  return typeof authority === "object" && "management" in authority;
}

test.each(CALLS)("$title shows a stranger nothing", async ({ route, call }) => {
  const { objects, stranger } = gateway;
  const keys = isForManagement(route) ? [] : [stranger.secretKey];
  for (const key of [...keys, stranger.managementKey]) {
    const response = await send(route, call, key);
    const text = await response.text();
    const isOfWrongKind = response.status === 403 && text.includes("wrong_key_kind");
    if (key === stranger.managementKey && isOfWrongKind) continue;
    expect(response.status, text).toBe(call.status ?? 404);
    expect(response.headers.get("x-gateway-cache")).not.toBe("hit");
    const sent = [call.query?.(objects), JSON.stringify(call.body?.(objects))].join(" ");
    const isError = response.status >= 400;
    const named = isError ? [sent, ...Object.values(objects)].join(" ") : sent;
    expectNothingOf(objects, text, named);
  }
});

test("names that another organization uses are free", async () => {
  const { managementKey } = gateway.stranger;
  const rules = [{ type: "pii", on: ["input"], action: "block" }];
  for (const [path, body] of [
    ["/v1/keys", { name: MARK }],
    ["/v1/budgets", { subject: { type: "user", value: MARK } }],
    ["/v1/teams", { name: MARK }],
    ["/v1/presets", { name: MARK, system: "hi" }],
    ["/v1/guardrails", { name: MARK, rules }],
  ] as const) {
    const response = await gateway.request("POST", path, body, { key: managementKey });
    expect({ path, status: response.status }).toEqual({ path, status: 201 });
  }
});

test("what a stranger purges is its own", async () => {
  const { secretKey, managementKey } = gateway.stranger;
  const headers = { "x-gateway-cache": "on" };
  const ask = (key?: string) =>
    gateway.request("POST", "/v1/chat/completions", CHAT, { headers, ...(key && { key }) });
  await (await ask(secretKey)).text();
  const purged = await gateway.request("DELETE", "/v1/cache", undefined, { key: managementKey });
  expect(await purged.json()).toEqual({ purged: 1 });
  const again = await ask();
  expect(again.headers.get("x-gateway-cache")).toBe("hit");
  await again.text();
});

const isEnding = (route: string) => route.startsWith("DELETE") || /\/(cancel)$/.test(route);

test("the owner's same calls find every object", async () => {
  const named = CALLS.filter(({ call }) => call.path !== undefined || (call.status ?? 0) >= 400);
  const found: Record<string, boolean> = {};
  const wanted: Record<string, boolean> = {};
  const ends = named.filter(({ route }) => isEnding(route));
  // What lies in another object is deleted before that one.
  const lastFirst = ends.toSorted((one, other) => other.route.length - one.route.length);
  for (const { title, route, call } of [
    ...named.filter((one) => !ends.includes(one)),
    ...lastFirst,
  ]) {
    if (route.endsWith("/download")) continue;
    const key = isForManagement(route) ? gateway.managementKey : gateway.secretKey;
    const response = await send(route, call, key);
    const text = await response.text();
    wanted[title] = true;
    found[title] = response.status !== 404 && !text.includes("not_found");
    if (!found[title]) console.error(title, response.status, text.slice(0, 300));
  }
  expect(found).toEqual(wanted);
});
