import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ROLES, type Role } from "../../src/lib/roles.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";
import { type Json, joined, manage, type SignedInPerson, uniqueEmail } from "./people.ts";

let gateway: TestGateway;
const people = {} as Record<Role, SignedInPerson>;
let team: Json;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" } });
  team = (await manage(gateway, "POST", "teams", { name: "builders" })).body;
  for (const role of ROLES) people[role] = await joined(gateway, role, { team_ids: [team.id] });
}, 30_000);
afterAll(() => gateway.stop());

const statusOf = async (role: Role, method: string, path: string, body?: unknown) =>
  (await people[role].call(method, `v1/${path}`, body)).status;

/** Routes, and the roles for which they answer. */
const TABLE: readonly [method: string, path: string, body: unknown, allowed: readonly Role[]][] = [
  ["GET", "keys", undefined, ["owner", "admin", "developer", "viewer"]],
  ["GET", "members", undefined, ["owner", "admin", "viewer"]],
  ["GET", "teams", undefined, ["owner", "admin", "viewer"]],
  ["POST", "teams", { name: "x" }, ["owner", "admin"]],
  ["GET", "invitations", undefined, ["owner", "admin", "viewer"]],
  ["GET", "credits", undefined, ["owner", "admin", "billing", "viewer"]],
  ["PATCH", "credits", { auto_replenish: false }, ["owner", "billing"]],
  ["GET", "webhooks", undefined, ["owner", "admin", "viewer"]],
  ["GET", "provider_keys", undefined, ["owner", "admin"]],
  ["GET", "presets", undefined, ["owner", "admin", "developer", "viewer"]],
  ["POST", "presets", { name: "p", parameters: {} }, ["owner", "admin"]],
  ["GET", "models", undefined, ["owner", "admin", "developer", "billing", "viewer"]],
];

test.each(TABLE)("%s /v1/%s is for these roles only", async (method, path, body, allowed) => {
  for (const role of ROLES) {
    const stated = (body as Json)?.name ? { ...(body as Json), name: crypto.randomUUID() } : body;
    const status = await statusOf(role, method, path, stated);
    expect(`${role} ${status < 300 ? "may" : status}`).toBe(
      `${role} ${allowed.includes(role) ? "may" : 403}`,
    );
  }
});

test.each(["usage/latency", "budgets", "scim_tokens", "credits/transactions", "webhooks"])(
  "figures and objects of others at /v1/%s are closed to developers",
  async (path) => expect(await statusOf("developer", "GET", path)).toBe(403),
);

describe("nobody grants what they lack", () => {
  test("by invitations", async () => {
    for (const role of ROLES) {
      const invite = (granter: Role) =>
        statusOf(granter, "POST", "invitations", { email: uniqueEmail(), role });
      expect(await invite("owner")).toBe(201);
      expect(await invite("admin")).toBe(role === "owner" ? 403 : 201);
      for (const other of ["developer", "billing", "viewer"] as const) {
        expect(await invite(other)).toBe(403);
      }
    }
  });

  test("by a change of a role, up or down, nor by removal", async () => {
    const idOf = (role: Role) => `members/${people[role].state.person.member_id}`;
    expect(await statusOf("admin", "PATCH", idOf("admin"), { role: "owner" })).toBe(403);
    expect(await statusOf("admin", "PATCH", idOf("owner"), { role: "viewer" })).toBe(403);
    expect(await statusOf("admin", "PATCH", idOf("owner"), { is_active: false })).toBe(403);
    expect(await statusOf("admin", "DELETE", idOf("owner"))).toBe(403);
    expect(await statusOf("viewer", "PATCH", idOf("viewer"), { role: "admin" })).toBe(403);
  });

  test("by a management key with few scopes", async () => {
    const [first] = await gateway.sql`
      SELECT id, organization_id FROM api_keys WHERE kind = 'management' LIMIT 1`;
    const before = await gateway.sql`SELECT scopes FROM api_keys WHERE id = ${first!.id}`;
    const other = await gateway.addOrganization();
    await gateway.sql`UPDATE api_keys SET scopes = '{keys:manage}', version = version + 1
      WHERE kind = 'management' AND organization_id <> ${first!.organization_id}`;
    const body = { email: uniqueEmail(), role: "owner" };
    const invited = await manage(gateway, "POST", "invitations", body, other.managementKey);
    expect(invited).toMatchObject({ status: 403, body: { error: { code: "role_not_permitted" } } });
    expect(before).toHaveLength(1);
  });

  test("by a secret key", async () => {
    for (const path of ["members", "invitations", "teams"]) {
      const reached = await manage(gateway, "GET", path, undefined, gateway.secretKey);
      expect(reached).toMatchObject({ status: 403, body: { error: { code: "wrong_key_kind" } } });
    }
  });
});

test("the last active owner cannot leave, be demoted or deactivated, even if two do it at once", async () => {
  const other = await gateway.addOrganization();
  const key = other.managementKey;
  const [first, second] = [
    await joined(gateway, "owner", { key }),
    await joined(gateway, "owner", { key }),
  ];
  const remove = (by: SignedInPerson, whom: SignedInPerson) =>
    by.call("DELETE", `v1/members/${whom.state.person.member_id}`);
  const answers = await Promise.all([remove(first, second), remove(second, first)]);
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  const members = await manage(gateway, "GET", "members", undefined, key);
  const [left] = members.body.data;
  for (const change of [{ role: "admin" }, { is_active: false }]) {
    const changed = await manage(gateway, "PATCH", `members/${left.id}`, change, key);
    expect(changed).toMatchObject({ status: 409, body: { error: { code: "last_owner" } } });
  }
  expect((await manage(gateway, "DELETE", `members/${left.id}`, undefined, key)).status).toBe(409);
});

test("members, invitations and teams of another organization do not exist", async () => {
  const other = await gateway.addOrganization();
  const key = other.managementKey;
  const id = people.admin.state.person.member_id;
  for (const [method, body] of [["GET"], ["PATCH", { role: "owner" }], ["DELETE"]] as const) {
    const reached = await manage(gateway, method, `members/${id}`, body, key);
    expect(reached).toMatchObject({ status: 404, body: { error: { code: "member_not_found" } } });
  }
  const invited = await manage(
    gateway,
    "POST",
    "invitations",
    { email: uniqueEmail(), role: "viewer", team_ids: [team.id] },
    key,
  );
  expect(invited.body.error.code).toBe("team_not_found");
});

describe("a developer", () => {
  test("creates keys of a team within its policy, also with many requests at once", async () => {
    const strict = await manage(gateway, "POST", "teams", {
      name: "strict",
      key_policy: { max_keys_per_member: 2, max_daily_budget_usd: 3, max_lifetime_days: 10 },
    });
    const developer = await joined(gateway, "developer", { team_ids: [strict.body.id] });
    const create = (settings: Json = {}) =>
      developer.call("POST", "v1/keys", { name: crypto.randomUUID(), ...settings });
    expect((await create({ daily_budget_usd: 4 })).status).toBe(400);
    expect((await create({ expires_at: "2099-01-01T00:00:00Z" })).status).toBe(400);
    expect((await create({ team_id: team.id })).status).toBe(403);
    const answers = await Promise.all(Array.from({ length: 6 }, () => create()));
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 201, 403, 403, 403, 403]);
    const made = answers.find(({ status }) => status === 201)!;
    const key = (await made.json()) as Json;
    expect(key).toMatchObject({
      team_id: strict.body.id,
      owner_id: developer.state.person.member_id,
      daily_budget_usd: 3,
    });
    expect(Date.parse(key.expires_at)).toBeLessThanOrEqual(Date.now() + 10 * 86_400_000);
    const change = (body: Json) => developer.call("PATCH", `v1/keys/${key.id}`, body);
    const loose = [
      ...[{ daily_budget_usd: 100 }, { daily_budget_usd: null }, { expires_at: null }],
      ...[{ team_id: null }, { team_id: team.id }, { owner_id: null }],
      ...[{ budget_includes_byok: true }, { scopes: ["keys:manage"] }],
    ];
    for (const body of loose) expect((await change(body)).status, JSON.stringify(body)).toBe(403);
    const tighter = {
      name: crypto.randomUUID(),
      daily_budget_usd: 2,
      allowed_models: ["sandbox/chat"],
    };
    expect(await (await change(tighter)).json()).toMatchObject(tighter);
    expect((await change({ allowed_models: null })).status).toBe(403);
    await manage(gateway, "PATCH", `keys/${key.id}`, { is_active: false });
    expect((await change({ is_active: true })).status).toBe(403);
  });

  test("and an admin give keys no scopes that their roles cannot use", async () => {
    for (const [role, scope] of [
      ["developer", "keys:manage"],
      ["developer", "presets:manage"],
      ["admin", "billing:write"],
    ] as const) {
      const create = (body: Json) =>
        people[role].call("POST", "v1/keys", { name: crypto.randomUUID(), ...body });
      expect((await create({ scopes: [scope] })).status).toBe(403);
      const made = (await (await create({})).json()) as Json;
      expect(made.scopes).not.toContain(scope);
      await people[role].call("DELETE", `v1/keys/${made.id}`);
    }
  });

  test("sees only usage and requests of its keys, also if it names others", async () => {
    const { developer, owner } = people;
    const chat = (key: string) =>
      gateway.request(
        "POST",
        "/v1/chat/completions",
        { model: "sandbox/chat", messages: [{ role: "user", content: "Hi" }] },
        { key },
      );
    const made = await developer.call("POST", "v1/keys", { name: crypto.randomUUID() });
    const { key, id } = (await made.json()) as Json;
    const answered = await chat(gateway.secretKey);
    expect(answered.status).toBe(200);
    const theirs = answered.headers.get("x-gateway-request-id");
    expect((await chat(key)).status).toBe(200);
    const read = async (path: string) => (await (await developer.call("GET", path)).json()) as Json;
    await until("its request is listed", async () => (await read("v1/requests")).data.length > 0);
    const listed = await read("v1/requests");
    expect(listed.data.map((one: Json) => one.key_id)).toEqual([id]);
    expect((await read(`v1/requests/${theirs}`)).error.code).toBe("request_not_found");
    expect((await developer.call("GET", `v1/requests?after=${theirs}`)).status).toBe(400);
    const usage = await read("v1/usage?group_by=key");
    expect(usage.data.map((one: Json) => one.key_id)).toEqual([id]);
    const other = owner.state.person.member_id;
    expect((await read(`v1/usage?member_id=${other}`)).data).toEqual([]);
    expect((await read(`v1/requests?member_id=${other}`)).data).toEqual([]);
    const member = developer.state.person.member_id;
    expect((await read(`v1/requests?member_id=${member}`)).data).toEqual(listed.data);
    const all = (await (await owner.call("GET", "v1/requests")).json()) as Json;
    expect(all.data.length).toBeGreaterThan(1);
    await developer.call("DELETE", `v1/keys/${id}`);
  });

  test("sees and changes only keys of its own, and keys cannot do more than it", async () => {
    const { developer, owner } = people;
    const theirs = (await (
      await owner.call("POST", "v1/keys", { name: crypto.randomUUID() })
    ).json()) as Json;
    const own = (await (
      await developer.call("POST", "v1/keys", { name: crypto.randomUUID() })
    ).json()) as Json;
    const listed = (await (await developer.call("GET", "v1/keys")).json()) as Json;
    expect(listed.data.map(({ id }: Json) => id)).toEqual([own.id]);
    for (const [method, body] of [["GET"], ["PATCH", { name: "mine" }], ["DELETE"]] as const) {
      expect((await developer.call(method, `v1/keys/${theirs.id}`, body)).status).toBe(404);
    }
    const given = await developer.call("PATCH", `v1/keys/${own.id}`, { owner_id: null });
    expect(given.status).toBe(403);
    expect((await manage(gateway, "GET", "keys", undefined, own.key)).status).toBe(403);
  });
});
