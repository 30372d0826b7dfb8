import { afterAll, beforeAll, expect, test } from "bun:test";
import { ROLES } from "../../src/lib/roles.ts";
import {
  browserOf,
  type Json,
  joined,
  manage,
  type SignedInPerson,
  signInWith,
} from "../people/people.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

let gateway: TestGateway;
let team: Json;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" } });
  team = (await manage(gateway, "POST", "teams", { name: "builders" })).body;
}, 30_000);
afterAll(() => gateway.stop());

const HOUR_MS = 3_600_000;

const person = (role: (typeof ROLES)[number], teamId: string | undefined = team.id) =>
  joined(gateway, role, { team_ids: teamId === undefined ? [] : [teamId] });

const ask = (browser: DashboardBrowser, body: object = {}) =>
  browser.call("POST", "playground/key", body);

async function keyOf(browser: DashboardBrowser, body: object = {}): Promise<Json> {
  const response = await ask(browser, body);
  const answer = (await response.json()) as Json;
  if (response.status !== 201) throw new Error(JSON.stringify(answer));
  return answer;
}

const chat = (key: string, model = "sandbox/chat") =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    { model, max_tokens: 50, messages: [{ role: "user", content: "Hello" }] },
    { key },
  );

async function signedInAgain({ email }: SignedInPerson): Promise<DashboardBrowser> {
  return browserOf(gateway, await signInWith(gateway, email), email);
}

test("a session gets a key for model calls alone, for an hour, which belongs to the person", async () => {
  const owner = await person("owner");
  const nowMs = Date.now();
  const key = await keyOf(owner);
  expect(key).toMatchObject({
    name: `Playground of ${owner.email}`,
    daily_budget_usd: 1,
    team_id: team.id,
  });
  expect(Date.parse(key.expires_at) - nowMs).toBeWithin(HOUR_MS - 1_000, HOUR_MS + 60_000);
  expect((await chat(key.key)).status).toBe(200);
  const self = (await manage(gateway, "GET", "key", undefined, key.key)).body;
  expect(self).toMatchObject({
    scopes: ["chat:completions", "embeddings", "images", "audio"],
    owner_id: owner.state.person.member_id,
    team_id: team.id,
    budget_includes_byok: true,
  });
  for (const [method, path] of [
    ["GET", "keys"],
    ["POST", "keys"],
    ["GET", "files"],
    ["GET", "usage"],
    ["POST", "playground/key"],
  ] as const) {
    const { status } = await manage(
      gateway,
      method,
      path,
      method === "POST" ? {} : undefined,
      key.key,
    );
    expect([path, status]).toEqual([path, path === "playground/key" ? 404 : 403]);
  }
});

test("all keys of a holder share one budget, which signing in again does not renew", async () => {
  const developer = await person("developer");
  const first = await keyOf(developer);
  await manage(gateway, "PATCH", `keys/${first.id}`, { daily_budget_usd: 0.0001 });
  const secrets = [first.key];
  for (let count = 0; count < 3; count++) {
    const again = await keyOf(await signedInAgain(developer));
    expect(again.id).toBe(first.id);
    expect(again.daily_budget_usd).toBe(0.0001);
    secrets.push(again.key);
  }
  const answers: number[] = [];
  for (let count = 0; count < 12; count++) {
    answers.push((await chat(secrets[count % secrets.length]!)).status);
  }
  expect(answers[0]).toBe(200);
  expect(answers.at(-1)).toBe(402);
  const { body } = await manage(gateway, "GET", `usage?group_by=key`);
  expect(body.data.filter((row: Json) => row.key_id === first.id)).toHaveLength(1);
  const raised = await developer.call("PATCH", `v1/keys/${first.id}`, { daily_budget_usd: 100 });
  expect(raised.status).toBe(403);
});

test("the policy of the team lowers the budget, and its member is asked for one of several teams", async () => {
  const policy = { max_keys_per_member: 1, max_daily_budget_usd: 0.25, max_lifetime_days: 1 };
  const strict = (await manage(gateway, "POST", "teams", { name: "strict", key_policy: policy }))
    .body;
  const developer = await joined(gateway, "developer", { team_ids: [team.id, strict.id] });
  const key = await keyOf(developer, { team_id: strict.id });
  expect(key).toMatchObject({ team_id: strict.id, daily_budget_usd: 0.25 });
  // The other team does not raise it again.
  expect(await keyOf(developer, { team_id: team.id })).toMatchObject({
    team_id: team.id,
    daily_budget_usd: 0.25,
  });
  const others = (await manage(gateway, "POST", "teams", { name: "others" })).body;
  await expectError(await ask(developer, { team_id: others.id }), 403, "key_not_permitted");
  // It is none of the keys that the policy counts.
  await keyOf(developer, { team_id: strict.id });
  const own = await developer.call("POST", "v1/keys", { name: "own", team_id: strict.id });
  expect(own.status).toBe(201);
});

test("only roles that may create keys for model calls get one", async () => {
  for (const role of ROLES) {
    const { status } = await ask(await person(role));
    const isAllowed = role !== "viewer" && role !== "billing";
    expect([role, status]).toEqual([role, isAllowed ? 201 : 403]);
  }
  await expectError(await ask(await joined(gateway, "developer")), 403, "key_not_permitted");
});

test("operators who view an organization get none", async () => {
  const operator = await signIn(gateway, await addOperator(gateway));
  await expectError(await ask(operator), 403, "wrong_key_kind");
  const started = await operator.call("POST", "session/view", {
    organization_id: gateway.organizationId,
  });
  await expectError(await ask(await browserOf(gateway, started, "")), 403, "role_not_permitted");
});

test("the key ends with the session, the role, the membership and the management key", async () => {
  const rejected = async (key: Json) => expectError(await chat(key.key), 401, "invalid_api_key");

  const out = await person("developer");
  const other = await keyOf(await signedInAgain(out));
  const ended = await keyOf(out);
  expect((await chat(ended.key)).status).toBe(200);
  await out.call("DELETE", "session");
  await rejected(ended);
  expect((await chat(other.key)).status).toBe(200);

  const demoted = await person("developer");
  const ofDemoted = await keyOf(demoted);
  expect((await chat(ofDemoted.key)).status).toBe(200);
  const demotedId = demoted.state.person.member_id;
  await manage(gateway, "PATCH", `members/${demotedId}`, { role: "viewer" });
  await rejected(ofDemoted);

  const removed = await person("admin");
  const ofRemoved = await keyOf(removed);
  expect((await chat(ofRemoved.key)).status).toBe(200);
  await manage(gateway, "DELETE", `members/${removed.state.person.member_id}`);
  await rejected(ofRemoved);

  const organization = await gateway.addOrganization();
  const holder = await keyOf(await signIn(gateway, organization.managementKey));
  expect((await chat(holder.key)).status).toBe(200);
  await gateway.sql`UPDATE api_keys SET is_active = false
    WHERE organization_id = ${organization.organization.id} AND kind = 'management'`;
  await rejected(holder);
});

test("a session has one key at a time, and an expired one is rejected", async () => {
  const browser = await person("developer");
  const first = await keyOf(browser);
  const second = await keyOf(browser);
  await expectError(await chat(first.key), 401, "invalid_api_key");
  expect((await chat(second.key)).status).toBe(200);
  await gateway.sql`UPDATE playground_secrets SET expires_at = now() WHERE key_id = ${second.id}`;
  await expectError(await chat(second.key), 401, "invalid_api_key");
  const keys = await Promise.all(Array.from({ length: 5 }, () => keyOf(browser)));
  expect(new Set(keys.map(({ id }) => id))).toEqual(new Set([first.id]));
  const [row] = await gateway.sql<{ count: number }[]>`
    SELECT count(*)::int AS count FROM playground_secrets WHERE key_id = ${first.id}`;
  expect(row!.count).toBe(1);
});

test("the key cannot be deleted or renamed, and an admin makes it inactive", async () => {
  const developer = await person("developer");
  const key = await keyOf(developer);
  for (const browser of [developer, await person("admin")]) {
    const deleted = await browser.call("DELETE", `v1/keys/${key.id}`);
    await expectError(deleted, 403, "key_not_permitted");
  }
  for (const change of [{ name: "mine" }, { owner_id: null }, { scopes: ["responses"] }]) {
    const { status } = await manage(gateway, "PATCH", `keys/${key.id}`, change);
    expect(status).toBe(403);
  }
  await manage(gateway, "PATCH", `keys/${key.id}`, { is_active: false });
  await expectError(await chat(key.key), 401, "key_inactive");
  await expectError(await ask(developer), 401, "key_inactive");
  const enabled = await developer.call("PATCH", `v1/keys/${key.id}`, { is_active: true });
  expect(enabled.status).toBe(403);
});

test("the secret is stored as a hash, each key has one audit entry, and no event", async () => {
  const developer = await person("developer");
  await manage(gateway, "POST", "keys", { name: `Playground of ${developer.email}` });
  const key = await keyOf(developer);
  expect(key.name).not.toBe(`Playground of ${developer.email}`);
  for (let count = 0; count < 3; count++) expect((await chat(key.key)).status).toBe(200);
  const { body } = await manage(gateway, "GET", `audit_log?object_id=${key.id}`);
  expect(body.data.map((entry: Json) => entry.action)).toEqual([
    "playground_key.created",
    "key.created",
  ]);
  expect(body.data[0].actor).toMatchObject({ kind: "person", name: developer.email });
  expect(JSON.stringify(body)).not.toContain(key.key);
  const stored = await gateway.sql`SELECT * FROM playground_secrets WHERE key_id = ${key.id}`;
  expect(JSON.stringify(stored)).not.toContain(key.key);
  const events = await gateway.sql`
    SELECT 1 FROM outbox WHERE data::text LIKE ${`%${key.id}%`} AND type LIKE 'key.%'`;
  expect(events).toHaveLength(0);
});
