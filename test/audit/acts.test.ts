import { afterAll, beforeAll, expect, test } from "bun:test";
import { hashApiKey } from "../../src/lib/api-key-format.ts";
import { AUTHORITY } from "../http/authority.ts";
import {
  type IsolationGateway,
  MARK,
  type Objects,
  startIsolationGateway,
} from "../http/isolation-objects.ts";
import { followPasswordLink, joined } from "../people/people.ts";
import { signIn } from "../support/dashboard-session.ts";
import { addOperator } from "../support/operator-keys.ts";

/*
 * Every administrative route that changes something writes an entry of the audit log, with the act itself. A route
 * that is mounted and missing here fails the test: who adds one says here which entry it writes.
 */

interface Act {
  /** Of the entry. */
  readonly action: string;
  readonly body?: (of: Objects) => object;
  /** By the names of the path's parameters. */
  readonly path?: (of: Objects) => Readonly<Record<string, string>>;
}

const at =
  (kind: keyof Objects): NonNullable<Act["path"]> =>
  (of) => ({ id: of[kind] });
const organization = () => ({ id: gateway.organizationId });

const ACTS: Readonly<Record<string, Act | "changes nothing">> = {
  "POST /v1/keys": { action: "key.created", body: () => ({ name: "new", daily_budget_usd: 0.1 }) },
  "PATCH /v1/keys/{id}": {
    action: "key.updated",
    path: at("key"),
    body: () => ({ rate_limit_rpm: 7 }),
  },
  "DELETE /v1/keys/{id}": { action: "key.deleted", path: at("key") },
  "POST /v1/budgets": {
    action: "budget.created",
    body: () => ({ subject: { type: "user", value: "ada" }, daily_budget_usd: 2 }),
  },
  "PATCH /v1/budgets/{id}": {
    action: "budget.updated",
    path: at("budget"),
    body: () => ({ monthly_budget_usd: 3.5 }),
  },
  "DELETE /v1/budgets/{id}": { action: "budget.deleted", path: at("budget") },
  "POST /v1/teams": {
    action: "team.created",
    body: () => ({ name: "research", daily_budget_usd: 2 }),
  },
  "PATCH /v1/teams/{id}": {
    action: "team.updated",
    path: at("team"),
    body: () => ({ rate_limit_rpm: 7 }),
  },
  "DELETE /v1/teams/{id}": { action: "team.deleted", path: at("team") },
  "PATCH /v1/members/{id}": {
    action: "member.updated",
    path: at("member"),
    body: () => ({ role: "viewer" }),
  },
  "DELETE /v1/members/{id}": { action: "member.deleted", path: at("member") },
  "POST /v1/invitations": {
    action: "invitation.created",
    body: () => ({ email: "guest@example.com", role: "admin" }),
  },
  "DELETE /v1/invitations/{id}": { action: "invitation.deleted", path: at("invitation") },
  "POST /v1/scim_tokens": { action: "key.created", body: () => ({ name: "Directory" }) },
  "PATCH /v1/credits": {
    action: "auto_replenish.updated",
    body: () => ({ auto_replenish: true, replenish_threshold_usd: 1, replenish_amount_usd: 5 }),
  },
  "POST /v1/credits/topup": { action: "topup.ordered", body: () => ({ amount_usd: 5 }) },
  "POST /v1/billing/payment_methods": {
    action: "payment_method.created",
    body: () => ({ payment_method: "pm_card_mastercard" }),
  },
  "PATCH /v1/billing/payment_methods/{id}": {
    action: "payment_method.updated",
    path: at("method"),
    body: () => ({ is_default: true }),
  },
  "DELETE /v1/billing/payment_methods/{id}": {
    action: "payment_method.deleted",
    path: at("method"),
  },
  "POST /v1/billing/subscription": { action: "plan.changed", body: () => ({ plan: "byok" }) },
  "DELETE /v1/cache": { action: "cache.purged" },
  "POST /v1/provider_keys": {
    action: "provider_key.created",
    body: () => ({ provider: "trainer", key: "sk-another-key-of-the-organization" }),
  },
  "DELETE /v1/provider_keys/{id}": { action: "provider_key.deleted", path: at("providerKey") },
  "POST /v1/guardrails": {
    action: "guardrail.created",
    body: () => ({ name: "new", rules: [{ type: "pii", on: ["input"], action: "block" }] }),
  },
  "PATCH /v1/guardrails/{id}": {
    action: "guardrail.updated",
    path: at("guardrail"),
    body: () => ({ name: "renamed" }),
  },
  "DELETE /v1/guardrails/{id}": { action: "guardrail.deleted", path: at("guardrail") },
  "POST /v1/presets": { action: "preset.created", body: () => ({ name: "new", system: "Short." }) },
  "PATCH /v1/presets/{id}": {
    action: "preset.updated",
    path: at("preset"),
    body: () => ({ system: "Long." }),
  },
  "DELETE /v1/presets/{id}": { action: "preset.deleted", path: at("preset") },
  "POST /v1/webhooks": {
    action: "webhook.created",
    body: () => ({
      ...{ url: "https://example.com/hook?token=nightingale", events: ["*"] },
      // Nothing is sent there.
      enabled: false,
    }),
  },
  "PATCH /v1/webhooks/{id}": {
    action: "webhook.updated",
    path: at("webhook"),
    body: () => ({ enabled: false }),
  },
  "POST /v1/webhooks/{id}/rotate_secret": { action: "webhook.secret_rotated", path: at("webhook") },
  "POST /v1/webhooks/{id}/test": "changes nothing",
  "POST /v1/webhooks/{id}/deliveries/{delivery_id}/redeliver": {
    action: "delivery.redelivered",
    path: (of) => ({ id: of.webhook, delivery_id: of.delivery }),
  },
  "POST /v1/alert_channels": {
    action: "alert_channel.created",
    body: () => ({
      ...{ name: "Duty", type: "slack", url: "https://example.com/nightingale" },
      ...{ alerts: ["balance"], enabled: false },
    }),
  },
  "PATCH /v1/alert_channels/{id}": {
    action: "alert_channel.updated",
    path: at("alertChannel"),
    body: () => ({ enabled: false }),
  },
  "POST /v1/alert_channels/{id}/test": "changes nothing",
  "DELETE /v1/alert_channels/{id}": {
    action: "alert_channel.deleted",
    path: at("alertChannel"),
  },
  "DELETE /v1/webhooks/{id}": { action: "webhook.deleted", path: at("webhook") },
  "DELETE /v1/models/{id}": { action: "model.deleted", path: at("model") },
  "POST /v1/admin/organizations": {
    action: "organization.created",
    body: () => ({ name: "Another" }),
  },
  "PATCH /v1/admin/organizations/{id}": {
    action: "organization.updated",
    path: organization,
    body: () => ({ max_keys: 77 }),
  },
  "POST /v1/admin/organizations/{id}/adjustments": {
    action: "credits.adjusted",
    path: organization,
    body: () => ({ amount_usd: 1.000000001, description: "Invoice 17" }),
  },
  "POST /v1/admin/organizations/{id}/refunds": {
    action: "credits.refunded",
    path: organization,
    body: (of) => ({ transaction_id: of.transaction }),
  },
  "POST /v1/admin/organizations/{id}/invitations": {
    action: "invitation.created",
    path: organization,
    body: () => ({ email: "first@example.com", role: "owner" }),
  },
  "POST /v1/admin/password_links": {
    action: "person.password_link_created",
    body: () => ({ email: OPERATOR_EMAIL }),
  },
  "POST /v1/admin/operators": {
    action: "person.updated",
    body: () => ({ email: MEMBER_EMAIL, role: "operator" }),
  },
  "DELETE /v1/admin/operators/{id}": {
    action: "person.updated",
    path: () => ({ id: operatorPersonId }),
  },
  "POST /v1/admin/identity_providers": {
    action: "identity_provider.created",
    body: () => identityProvider("Other"),
  },
  "PATCH /v1/admin/identity_providers/{id}": {
    action: "identity_provider.updated",
    path: () => ({ id: identityProviderId }),
    body: () => ({ client_secret: "another-client-secret", name: "Example Inc." }),
  },
  "DELETE /v1/admin/identity_providers/{id}": {
    action: "identity_provider.deleted",
    path: () => ({ id: identityProviderId }),
  },
  "POST /v1/admin/providers": {
    action: "provider.created",
    body: () => ({ id: "lab-2", type: "sandbox" }),
  },
  "PATCH /v1/admin/providers/{id}": {
    action: "provider.updated",
    path: () => ({ id: "lab" }),
    body: () => ({ max_parallel_requests: 9 }),
  },
  "POST /v1/admin/providers/{id}/test": "changes nothing",
  "DELETE /v1/admin/providers/{id}": {
    action: "provider.deleted",
    path: () => ({ id: "lab" }),
  },
  "POST /v1/admin/models": { action: "model.created", body: () => modelEntry("acme/other") },
  "PATCH /v1/admin/models/{id}": {
    action: "model.updated",
    path: () => ({ id: "acme/assistant" }),
    body: () => ({ output_cost_per_token: 3e-6 }),
  },
  "POST /v1/admin/models/{id}/test": "changes nothing",
  "DELETE /v1/admin/models/{id}": {
    action: "model.deleted",
    path: () => ({ id: "acme/assistant" }),
  },
  "POST /v1/admin/aliases": {
    action: "alias.created",
    body: () => ({ id: "faster", models: [{ id: "sandbox/chat" }] }),
  },
  "PATCH /v1/admin/aliases/{id}": {
    action: "alias.updated",
    path: () => ({ id: "fast" }),
    body: () => ({ description: "Short answers" }),
  },
  "POST /v1/admin/aliases/{id}/test": "changes nothing",
  "DELETE /v1/admin/aliases/{id}": {
    action: "alias.deleted",
    path: () => ({ id: "fast" }),
  },
  "POST /v1/admin/prices": { action: "price.created", body: () => priceEntry("much-later") },
  "DELETE /v1/admin/prices/{id}": {
    action: "price.deleted",
    path: () => ({ id: "later" }),
  },
};

const modelEntry = (id: string) => ({
  ...{ id, context_length: 8192, input_cost_per_token: 1e-6, output_cost_per_token: 2e-6 },
  endpoints: [{ provider: "sandbox", model: "chat" }],
});
/** Address of the member that the gateway of the test begins with. */
const MEMBER_EMAIL = `${MARK}@example.com`;
const OPERATOR_EMAIL = "operator@example.com";
const identityProvider = (name: string) => ({
  ...{ name, issuer: "https://login.example.com" },
  ...{ client_id: "gateway", client_secret: "a-client-secret" },
});
const priceEntry = (id: string) => ({
  ...{ id, model: "sandbox/chat", valid_from: "2090-01-01T00:00:00Z" },
  pricing: { input_cost_per_token: 1e-6 },
});

/** A secret in an answer: the value of a field, or the token of a link. */
const SECRET =
  /(?:"(?:key|secret|management_key|secret_key|token)":"|\/dashboard\/[\w-]+#)([^"]+)"/g;

interface Entry {
  readonly id: string;
  readonly organization_id: string | null;
  readonly action: string;
  readonly object: { readonly type: string; readonly id: string | null };
  readonly actor: Readonly<Record<string, string | null>>;
  readonly before: Readonly<Record<string, unknown>> | null;
  readonly after: Readonly<Record<string, unknown>> | null;
  readonly created_at: string;
}

let gateway: IsolationGateway;
let operator: string;
let operatorPersonId: string;
let identityProviderId: string;
const written = new Map<string, Entry>();
/** What no entry may hold. */
const secrets: string[] = [
  ...["nightingale", "sk-another-key-of-the-organization"],
  ...["a-client-secret", "another-client-secret"],
];

beforeAll(async () => {
  gateway = await startIsolationGateway();
  operator = await addOperator(gateway);
  for (const [plural, entry] of [
    ["providers", { id: "lab", type: "sandbox" }],
    ["models", modelEntry("acme/assistant")],
    ["aliases", { id: "fast", models: [{ id: "sandbox/chat" }] }],
    ["prices", priceEntry("later")],
  ] as const) {
    const path = `/v1/admin/${plural}`;
    expect((await gateway.request("POST", path, entry, { key: operator })).status).toBe(201);
  }
  await joined(gateway, "viewer", { email: OPERATOR_EMAIL });
  const asOperator = async (path: string, body: object) => {
    const made = await gateway.request("POST", `/v1/admin/${path}`, body, { key: operator });
    expect(made.status).toBe(201);
    return (await made.json()) as { id: string; url: string };
  };
  for (const email of [OPERATOR_EMAIL, MEMBER_EMAIL]) {
    await followPasswordLink(gateway, await asOperator("password_links", { email }));
  }
  const promoted = { email: OPERATOR_EMAIL, role: "operator" };
  operatorPersonId = (await asOperator("operators", promoted)).id;
  identityProviderId = (await asOperator("identity_providers", identityProvider("Example"))).id;
  secrets.push(operator, gateway.managementKey, gateway.secretKey, "sk-of-the-organization");
  secrets.push(...secrets.map(hashApiKey));
}, 60_000);
afterAll(() => gateway.stop());

async function list(query = "", key = operator): Promise<{ data: Entry[]; has_more: boolean }> {
  const path = key === operator ? "/v1/admin/audit_log" : "/v1/audit_log";
  const response = await gateway.request("GET", `${path}?${query}`, undefined, { key });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return JSON.parse(text);
}

/** The gateway itself acts at times of its own, such as when it tops a balance up. */
async function actsOfCallers(): Promise<Entry[]> {
  const { data } = await list("limit=200", gateway.managementKey);
  return data.filter(({ actor }) => actor.kind !== "system");
}

test("every administrative route that changes something states its act here, and nothing else is stated", () => {
  const administrative = Object.entries(AUTHORITY).flatMap(([route, authority]) => {
    const isOurs =
      authority === "operator" || (typeof authority === "object" && !("secret" in authority));
    return isOurs && !route.startsWith("GET ") ? route : [];
  });
  expect(Object.keys(ACTS).toSorted()).toEqual(administrative.toSorted());
});

const CALLS = Object.entries(ACTS).flatMap(([route, act]) =>
  act === "changes nothing" ? [] : { route, act },
);
/** What the others name is deleted last, and of two that name one object the longer path comes first. */
const IN_ORDER = CALLS.toSorted(
  (one, other) =>
    Number(one.route.startsWith("DELETE")) - Number(other.route.startsWith("DELETE")) ||
    other.route.length - one.route.length,
);

/** The only payment method is the default one, so that making it that would change nothing. */
async function makeAnotherDefault(): Promise<void> {
  const path = "/v1/billing/payment_methods";
  const { managementKey: key } = gateway;
  const added = await gateway.request("POST", path, { payment_method: "pm_card_amex" }, { key });
  const { id } = (await added.json()) as { id: string };
  const changed = await gateway.request("PATCH", `${path}/${id}`, { is_default: true }, { key });
  expect(changed.status).toBe(200);
}

test.each(IN_ORDER)("$route writes $act.action", async ({ route, act }) => {
  const { objects } = gateway;
  const [method, pattern] = route.split(" ") as [string, string];
  const names = act.path?.(objects) ?? {};
  const path = pattern.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(names[name]!),
  );
  const key = path.startsWith("/v1/admin") ? operator : gateway.managementKey;
  if (act.action === "payment_method.updated") await makeAnotherDefault();
  const response = await gateway.request(method, path, act.body?.(objects), {
    key,
    headers: { "user-agent": "audit-test", "if-match": "*", "x-forwarded-for": "198.51.100.7" },
  });
  const text = await response.text();
  expect(response.status, text).toBeLessThan(300);
  for (const [, secret] of text.matchAll(SECRET)) {
    secrets.push(secret!, hashApiKey(secret!));
  }
  const requestId = response.headers.get("x-gateway-request-id");
  const { data } = await list("limit=200");
  const entries = data.filter(({ actor }) => actor.request_id === requestId);
  const entry = entries.find(({ action }) => action === act.action);
  expect(entry, JSON.stringify(entries)).toBeDefined();
  written.set(route, entry!);
  expect(entry!.actor).toMatchObject({
    kind: key === operator ? "operator" : "management_key",
    name: key === operator ? "Operator" : "Default management key",
    via: "api",
    address: "127.0.0.1",
    user_agent: "audit-test",
  });
  if (key !== operator) expect(entry!.organization_id).toBe(gateway.organizationId);
});

test("entries show what changed, before and after, in the words of the API", () => {
  const shown = (route: string) => {
    const { before, after } = written.get(route)!;
    return { before, after };
  };
  expect(shown("PATCH /v1/keys/{id}")).toEqual({
    before: { rate_limit_rpm: 60 },
    after: { rate_limit_rpm: 7 },
  });
  expect(shown("POST /v1/keys").before).toBeNull();
  expect(shown("POST /v1/keys").after).toMatchObject({ name: "new", daily_budget_usd: 0.1 });
  expect(shown("DELETE /v1/keys/{id}").after).toBeNull();
  expect(shown("DELETE /v1/keys/{id}").before).toMatchObject({ rate_limit_rpm: 7 });
  expect(shown("PATCH /v1/budgets/{id}")).toEqual({
    before: { monthly_budget_usd: null },
    after: { monthly_budget_usd: 3.5 },
  });
  expect(shown("PATCH /v1/teams/{id}")).toEqual({
    before: { rate_limit_rpm: null },
    after: { rate_limit_rpm: 7 },
  });
  expect(shown("PATCH /v1/presets/{id}")).toEqual({
    before: { system: "zebrafinch" },
    after: { system: "Long." },
  });
  expect(shown("PATCH /v1/guardrails/{id}")).toEqual({
    before: { name: "zebrafinch" },
    after: { name: "renamed" },
  });
  expect(shown("POST /v1/billing/subscription")).toEqual({
    before: { plan: "free" },
    after: { plan: "byok" },
  });
  expect(shown("POST /v1/admin/organizations/{id}/adjustments").after).toMatchObject({
    amount_usd: 1.000000001,
    description: "Invoice 17",
  });
  expect(shown("POST /v1/webhooks/{id}/rotate_secret")).toEqual({ before: null, after: null });
});

test("no entry holds a secret, a hash of one, or the query of a URL", async () => {
  const text = JSON.stringify([...(await gateway.sql`SELECT * FROM audit_log`)]);
  expect(secrets.length).toBeGreaterThan(12);
  for (const secret of secrets) expect(text).not.toContain(secret);
});

test("what is refused, or changes nothing, writes no entry", async () => {
  const { managementKey: key } = gateway;
  const before = await actsOfCallers();
  const taken = await gateway.request("POST", "/v1/keys", { name: "new" }, { key });
  expect(taken.status).toBe(409);
  const preset = await gateway.request(
    "POST",
    "/v1/presets",
    { name: "new", system: "x" },
    { key },
  );
  expect(preset.status).toBe(409);
  const path = `/v1/admin/organizations/${gateway.organizationId}`;
  const adjustment = { amount_usd: -1_000_000, description: "More than there is" };
  const uncovered = await gateway.request("POST", `${path}/adjustments`, adjustment, {
    key: operator,
  });
  expect(uncovered.status).toBe(402);
  const same = await gateway.request("PATCH", path, { max_keys: 77 }, { key: operator });
  expect(same.status).toBe(200);
  expect(await actsOfCallers()).toEqual(before);
});

test("changes that are committed together keep their authors", async () => {
  const { managementKey, secretKey } = gateway;
  const ids = await Promise.all(
    Array.from({ length: 12 }, async (_, index) => {
      const key = index % 2 === 0 ? managementKey : secretKey;
      const name = `together ${index}`;
      const made = await gateway.request("POST", "/v1/keys", { name }, { key });
      return ((await made.json()) as { id: string }).id;
    }),
  );
  for (const [index, id] of ids.entries()) {
    const { data } = await list(`object_id=${id}`);
    expect(data.map(({ action, actor }) => [action, actor.kind])).toEqual([
      ["key.created", index % 2 === 0 ? "management_key" : "secret_key"],
    ]);
  }
});

test("plans, suspensions and credit limits are acts of their own, also of operators", async () => {
  const path = `/v1/admin/organizations/${gateway.organizationId}`;
  const change = async (body: object) => {
    const response = await gateway.request("PATCH", path, body, { key: operator });
    expect(response.status, await response.clone().text()).toBe(200);
    const id = response.headers.get("x-gateway-request-id");
    const { data } = await list("limit=20");
    return data
      .filter(({ actor }) => actor.request_id === id)
      .map(({ action, before, after }) => ({ action, before, after }));
  };
  expect(await change({ credit_limit_usd: 2.5 })).toEqual([
    {
      action: "organization.updated",
      before: { credit_limit_usd: 0 },
      after: { credit_limit_usd: 2.5 },
    },
  ]);
  expect(await change({ suspended: true })).toMatchObject([{ action: "organization.suspended" }]);
  expect(await change({ suspended: false })).toMatchObject([{ action: "organization.resumed" }]);
  expect(await change({ plan: "free", name: "Renamed" })).toMatchObject([
    { action: "organization.updated", after: { name: "Renamed" } },
    { action: "plan.changed", before: { plan: "byok" }, after: { plan: "free" } },
  ]);
});

test("what a session of the dashboard does, and its begin and end, are acts of its key", async () => {
  const browser = await signIn(gateway, gateway.managementKey);
  const made = await browser.call("POST", "v1/presets", { name: "dashed", system: "Short." });
  expect(made.status).toBe(201);
  expect((await browser.call("DELETE", "session")).status).toBe(200);
  const data = (await actsOfCallers()).slice(0, 3);
  const actor = { kind: "management_key", name: "Default management key", via: "dashboard" };
  expect(data).toMatchObject([
    { action: "session.ended", object: { type: "session", id: null }, actor },
    { action: "preset.created", actor },
    { action: "session.started", actor: { ...actor, address: "127.0.0.1" } },
  ]);
});

test("an organization sees its own acts, and not where operators work from; operators see all", async () => {
  const own = await list("limit=200", gateway.managementKey);
  expect(own.data.length).toBeGreaterThan(30);
  for (const entry of own.data) expect(entry.organization_id).toBe(gateway.organizationId);
  const ofOperators = own.data.filter(({ actor }) => actor.kind === "operator");
  expect(ofOperators.length).toBeGreaterThan(2);
  for (const { actor } of ofOperators) {
    expect(actor).toMatchObject({ address: null, user_agent: null });
  }
  const { stranger } = gateway;
  const theirs = await list("limit=200", stranger.managementKey);
  for (const entry of theirs.data) expect(entry.organization_id).toBe(stranger.organization.id);
  const foreign = await gateway.request(
    "GET",
    `/v1/audit_log?after=${own.data[0]!.id}`,
    undefined,
    {
      key: stranger.managementKey,
    },
  );
  expect(foreign.status).toBe(400);
  const ofGateway = await list("action=operator_key.created");
  expect(ofGateway.data).toMatchObject([{ organization_id: null, actor: { kind: "system" } }]);
  const narrowed = await list(`organization_id=${stranger.organization.id}`);
  expect(narrowed.data).toEqual(theirs.data);
});

test("the list is filtered and paged, newest first", async () => {
  const key = gateway.managementKey;
  const all = (await list("limit=200", key)).data;
  const paged: Entry[] = [];
  for (let after = ""; ; ) {
    const page = await list(`limit=7${after && `&after=${after}`}`, key);
    paged.push(...page.data);
    if (!page.has_more) break;
    after = page.data.at(-1)!.id;
  }
  expect(paged.slice(0, all.length)).toEqual(all);
  expect(paged.map(({ id }) => id)).toEqual(
    paged
      .map(({ id }) => id)
      .toSorted()
      .reverse(),
  );
  const { key: keyId } = gateway.objects;
  const ofKey = await list(`object_type=key&object_id=${keyId}`, key);
  expect(ofKey.data.map(({ action }) => action)).toEqual([
    "key.deleted",
    "key.updated",
    "key.created",
  ]);
  const actor = ofKey.data[0]!.actor.id!;
  const byActor = (await list(`limit=200&actor_id=${actor}`, key)).data;
  expect(byActor.length).toBeGreaterThan(10);
  for (const entry of byActor) expect(entry.actor.id).toBe(actor);
  const { created_at: time } = ofKey.data[1]!;
  const since = (await list(`limit=200&start_date=${time}`, key)).data;
  expect(since.length).toBeGreaterThan(0);
  expect(since.every(({ created_at }) => created_at >= time)).toBe(true);
  expect(since.map(({ id }) => id)).toContain(ofKey.data[1]!.id);
  const until = (await list(`limit=200&end_date=${time}`, key)).data;
  expect(until.every(({ created_at }) => created_at <= time)).toBe(true);
  expect(until.map(({ id }) => id)).toContain(ofKey.data[1]!.id);
});
