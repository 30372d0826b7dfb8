import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { askDashboard } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";
import { anyAddress, invite, type Json, joined, manage, PASSWORD, uniqueEmail } from "./people.ts";

const USER = "urn:ietf:params:scim:schemas:core:2.0:User";
const GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group";
const PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp";

let gateway: TestGateway;
let token: string;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" } });
  token = await newToken();
});
afterAll(() => gateway.stop());

async function newToken(key = gateway.managementKey): Promise<string> {
  const created = await manage(gateway, "POST", "scim_tokens", { name: crypto.randomUUID() }, key);
  expect(created.status).toBe(201);
  expect(created.body.token).toMatch(/^gateway_scim_/);
  return created.body.token;
}

async function scim(
  method: string,
  path: string,
  body?: unknown,
  bearer = token,
): Promise<{ status: number; body: Json }> {
  const response = await fetch(`${gateway.baseUrl}/scim/v2/${path}`, {
    method,
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/scim+json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (text !== "") expect(response.headers.get("content-type")).toContain("json");
  return { status: response.status, body: text === "" ? {} : JSON.parse(text) };
}

const userBody = (userName: string, more: Json = {}) => ({
  schemas: [USER],
  ...{ userName, name: { givenName: "Ada", familyName: "Lovelace" } },
  emails: [{ primary: true, value: userName, type: "work" }],
  ...{ active: true, externalId: `ext-${userName}` },
  ...more,
});
const patch = (path: string, ...Operations: Json[]) =>
  scim("PATCH", path, { schemas: [PATCH], Operations });

async function addUser(more: Json = {}): Promise<Json> {
  const created = await scim("POST", "Users", userBody(uniqueEmail(), more));
  expect(created.status).toBe(201);
  return created.body;
}

async function addGroup(members: readonly string[] = []): Promise<Json> {
  const created = await scim("POST", "Groups", {
    ...{ schemas: [GROUP], displayName: crypto.randomUUID() },
    members: members.map((value) => ({ value })),
  });
  expect(created.status).toBe(201);
  return created.body;
}

describe("users", () => {
  test("are created as developers, found by name and externalId, and are members", async () => {
    const user = await addUser();
    expect(structuredClone(user)).toMatchObject({
      schemas: [USER],
      id: expect.stringMatching(/^mem_/),
      externalId: `ext-${user.userName}`,
      displayName: "Ada Lovelace",
      active: true,
      roles: [{ value: "developer" }],
      meta: { resourceType: "User", location: `${gateway.baseUrl}/scim/v2/Users/${user.id}` },
    });
    for (const filter of [`userName eq "${user.userName}"`, `externalId eq "${user.externalId}"`]) {
      const found = await scim(
        "GET",
        `Users?filter=${encodeURIComponent(filter)}&startIndex=1&count=10`,
      );
      expect(found.body).toMatchObject({ totalResults: 1, Resources: [{ id: user.id }] });
    }
    const none = await scim(
      "GET",
      `Users?filter=${encodeURIComponent('userName eq "nobody@example.com"')}`,
    );
    expect(none.body).toMatchObject({ totalResults: 0 });
    const member = await manage(gateway, "GET", `members/${user.id}`);
    expect(member.body).toMatchObject({ email: user.userName, name: "Ada Lovelace" });
    const again = await scim("POST", "Users", userBody(user.userName.toUpperCase()));
    expect(again).toMatchObject({ status: 409, body: { scimType: "uniqueness", status: "409" } });
  });

  test("change by PUT and by PATCH of Okta and of Entra ID", async () => {
    const user = await addUser();
    const put = await scim(
      "PUT",
      `Users/${user.id}`,
      userBody(user.userName, { displayName: "Countess" }),
    );
    expect(put).toMatchObject({ status: 200, body: { displayName: "Countess" } });
    const okta = await patch(`Users/${user.id}`, { op: "replace", value: { active: false } });
    expect(okta.body.active).toBe(false);
    const entra = await patch(
      `Users/${user.id}`,
      { op: "Replace", path: "active", value: "True" },
      { op: "Add", path: "displayName", value: "Lady Ada" },
    );
    expect(entra.body).toMatchObject({ active: true, displayName: "Lady Ada" });
    const role = await patch(`Users/${user.id}`, {
      op: "replace",
      path: "roles",
      value: [{ value: "viewer" }],
    });
    expect(role.body.roles).toMatchObject([{ value: "viewer" }]);
    const owner = await patch(`Users/${user.id}`, {
      op: "replace",
      path: "roles",
      value: [{ value: "owner" }],
    });
    expect(owner).toMatchObject({ status: 400, body: { scimType: "invalidValue" } });
  });

  test("who are deactivated are signed out and their keys stop within a second", async () => {
    const team = await manage(gateway, "POST", "teams", { name: crypto.randomUUID() });
    const developer = await joined(gateway, "developer", { team_ids: [team.body.id] });
    const created = await developer.call("POST", "v1/keys", { name: crypto.randomUUID() });
    const { key } = (await created.json()) as Json;
    const chat = () =>
      gateway.request(
        "POST",
        "/v1/chat/completions",
        { model: "sandbox/chat", messages: [{ role: "user", content: "Hi" }] },
        { key },
      );
    expect((await chat()).status).toBe(200);
    const path = `Users/${developer.state.person.member_id}`;
    await patch(path, { op: "replace", path: "active", value: false });
    expect((await developer.call("GET", "account")).status).toBe(401);
    await until("the key stops", async () => (await chat()).status === 401, 1_000);
    expect((await scim("DELETE", path)).status).toBe(204);
    expect((await scim("GET", path)).status).toBe(404);
  });

  test("with an account of another organization are not taken over, renamed or shown", async () => {
    const other = await gateway.addOrganization();
    const person = await joined(gateway, "owner", { key: other.managementKey });
    const taken = await scim("POST", "Users", userBody(person.email));
    expect(taken).toMatchObject({ status: 409, body: { scimType: "uniqueness" } });
    expect(JSON.stringify(taken.body)).not.toContain("The owner");
    const member = await joined(gateway, "viewer");
    const { token: link } = await invite(gateway, "viewer", {
      ...{ email: member.email, key: other.managementKey },
    });
    const accepted = { token: link, password: PASSWORD };
    await askDashboard(gateway, "POST", "invitation/accept", accepted, anyAddress());
    const path = `Users/${member.state.person.member_id}`;
    const stolen = await scim("PUT", path, userBody("attacker@example.com"));
    expect(stolen).toMatchObject({ status: 400, body: { scimType: "mutability" } });
  });

  test("the last active owner is not deactivated", async () => {
    const other = await gateway.addOrganization();
    const owner = await joined(gateway, "owner", { key: other.managementKey });
    const bearer = await newToken(other.managementKey);
    const path = `Users/${owner.state.person.member_id}`;
    const body = {
      schemas: [PATCH],
      Operations: [{ op: "replace", path: "active", value: false }],
    };
    expect((await scim("PATCH", path, body, bearer)).status).toBe(409);
    expect((await scim("DELETE", path, undefined, bearer)).status).toBe(409);
    expect((await owner.call("GET", "account")).status).toBe(200);
  });
});

test("an admin, who cannot manage owners, creates no token that can", async () => {
  const [owner, admin] = [await joined(gateway, "owner"), await joined(gateway, "admin")];
  const create = (by: typeof owner) =>
    by.call("POST", "v1/scim_tokens", { name: crypto.randomUUID() });
  const rejected = await create(admin);
  expect(rejected.status).toBe(403);
  expect(((await rejected.json()) as Json).error.code).toBe("role_not_permitted");
  expect((await create(owner)).status).toBe(201);
});

describe("groups", () => {
  test("are teams, and members that are added at the same time are all there", async () => {
    const users = await Promise.all(Array.from({ length: 6 }, () => addUser()));
    const group = await addGroup([users[0]!.id]);
    await Promise.all(
      users
        .slice(1)
        .map(({ id }) =>
          patch(`Groups/${group.id}`, { op: "add", path: "members", value: [{ value: id }] }),
        ),
    );
    const read = await scim("GET", `Groups/${group.id}`);
    expect(read.body.members.map(({ value }: Json) => value).sort()).toEqual(
      users.map(({ id }) => id).sort(),
    );
    const removed = users[3]!.id;
    await patch(`Groups/${group.id}`, { op: "remove", path: `members[value eq "${removed}"]` });
    const member = await manage(gateway, "GET", `members/${removed}`);
    expect(member.body.teams).toEqual([]);
    const kept = await manage(gateway, "GET", `members/${users[1]!.id}`);
    expect(kept.body.teams).toEqual([{ id: group.id, role: "member" }]);
    const user = await scim("GET", `Users/${users[1]!.id}`);
    expect(user.body.groups).toMatchObject([{ value: group.id, display: group.displayName }]);
  });

  test("are renamed, and deleted unless their team has keys", async () => {
    const group = await addGroup();
    const name = crypto.randomUUID();
    await patch(`Groups/${group.id}`, { op: "replace", path: "displayName", value: name });
    expect((await manage(gateway, "GET", `teams/${group.id}`)).body.name).toBe(name);
    const taken = await scim("POST", "Groups", { schemas: [GROUP], displayName: name });
    expect(taken).toMatchObject({ status: 409, body: { scimType: "uniqueness" } });
    const key = await manage(gateway, "POST", "keys", {
      name: crypto.randomUUID(),
      team_id: group.id,
    });
    expect((await scim("DELETE", `Groups/${group.id}`)).status).toBe(409);
    await manage(gateway, "DELETE", `keys/${key.body.id}`);
    expect((await scim("DELETE", `Groups/${group.id}`)).status).toBe(204);
  });

  test("with a member of another organization change nothing", async () => {
    const other = await gateway.addOrganization();
    const stranger = await joined(gateway, "viewer", { key: other.managementKey });
    const user = await addUser();
    const group = await addGroup([user.id]);
    const added = await patch(
      `Groups/${group.id}`,
      { op: "replace", path: "displayName", value: "renamed" },
      { op: "add", path: "members", value: [{ value: stranger.state.person.member_id }] },
    );
    expect(added).toMatchObject({ status: 400, body: { scimType: "invalidValue" } });
    const read = await scim("GET", `Groups/${group.id}`);
    expect(read.body).toMatchObject({
      displayName: group.displayName,
      members: [{ value: user.id }],
    });
  });
});

test("other keys do not reach SCIM, a SCIM token reaches nothing else, and a revoked one nothing", async () => {
  for (const key of [gateway.managementKey, gateway.secretKey]) {
    expect(await scim("GET", "Users", undefined, key)).toMatchObject({
      status: 403,
      body: { schemas: ["urn:ietf:params:scim:api:messages:2.0:Error"], status: "403" },
    });
  }
  for (const path of ["keys", "key", "members", "organization", "models"]) {
    expect((await manage(gateway, "GET", path, undefined, token)).status).toBe(403);
  }
  const other = await gateway.addOrganization();
  const user = await addUser();
  const foreign = await newToken(other.managementKey);
  expect((await scim("GET", `Users/${user.id}`, undefined, foreign)).status).toBe(404);
  expect((await scim("GET", "Users", undefined, foreign)).body.totalResults).toBe(0);
  const listed = await manage(gateway, "GET", "scim_tokens", undefined, other.managementKey);
  await manage(gateway, "DELETE", `keys/${listed.body.data[0].id}`, undefined, other.managementKey);
  await until(
    "the token stops",
    async () => (await scim("GET", "Users", undefined, foreign)).status === 401,
    1_000,
  );
});

test("bad requests are answered in SCIM's form", async () => {
  expect(
    await scim("POST", "Users", { schemas: [USER], userName: "not an address" }),
  ).toMatchObject({
    status: 400,
    body: { scimType: "invalidValue", detail: expect.any(String) },
  });
  expect(
    (await scim("PATCH", "Users/mem_unknown", { schemas: [PATCH], Operations: [] })).status,
  ).toBe(400);
  expect((await scim("GET", "Users?filter=userName%20like%20x")).status).toBe(400);
  const long = encodeURIComponent(`userName co "${"x".repeat(1_000)}"`);
  expect((await scim("GET", `Users?filter=${long}`)).status).toBe(400);
  expect((await scim("GET", "Users/mem_unknown")).status).toBe(404);
  expect((await scim("POST", "Users", [])).status).toBe(400);
  for (const path of ["ServiceProviderConfig", "Schemas", "ResourceTypes", `Schemas/${USER}`]) {
    expect((await scim("GET", path)).status).toBe(200);
  }
});

test("unknown addresses, types of roles and long lists of operations are answered in SCIM's form", async () => {
  const missing = await scim("GET", "Nothing/1");
  expect(missing).toMatchObject({ status: 404, body: { status: "404" } });
  expect(missing.body.schemas).toEqual(["urn:ietf:params:scim:api:messages:2.0:Error"]);
  const user = await addUser({ roles: [{ value: "viewer", type: "access", primary: true }] });
  expect(user.roles).toEqual([{ value: "viewer", primary: true }]);
  const operation = { op: "replace", path: "displayName", value: "Ada" };
  const many = await patch(`Users/${user.id}`, ...Array.from({ length: 1_001 }, () => operation));
  expect(many).toMatchObject({ status: 413, body: { status: "413" } });
  const email = uniqueEmail();
  const named = await addUser({ userName: "ada", emails: [{ value: email, primary: true }] });
  expect(named.userName).toBe(email);
});

test("lists are paged, also those of a filter", async () => {
  const created = [await addUser(), await addUser(), await addUser()];
  const [all, page, last] = [
    await scim("GET", "Users?count=1000"),
    await scim("GET", "Users?startIndex=2&count=2"),
    await scim("GET", "Users?startIndex=100000&count=2"),
  ];
  const total = all.body.totalResults;
  expect(all.body.Resources).toHaveLength(total);
  expect(page.body).toMatchObject({ totalResults: total, startIndex: 2 });
  expect(page.body.Resources.map(({ id }: Json) => id)).toEqual(
    all.body.Resources.slice(1, 3).map(({ id }: Json) => id),
  );
  expect(last.body).toMatchObject({ totalResults: total, Resources: [] });
  const sorted = await scim("GET", "Users?sortBy=userName&startIndex=2&count=2");
  expect(sorted.body).toMatchObject({ totalResults: total, startIndex: 2 });
  expect(sorted.body.Resources).toHaveLength(2);
  for (const filter of [`id eq "${created[1]!.id}"`, `externalId eq "${created[1]!.externalId}"`]) {
    const found = await scim("GET", `Users?filter=${encodeURIComponent(filter)}`);
    expect(found.body).toMatchObject({ totalResults: 1, Resources: [{ id: created[1]!.id }] });
  }
  expect((await scim("GET", "Users?count=-1&startIndex=x")).body).toMatchObject({
    ...{ totalResults: total, startIndex: 1, Resources: [] },
  });
  const only = await scim("GET", `Users/${created[0]!.id}?attributes=userName,active`);
  expect(Object.keys(only.body)).toEqual(expect.arrayContaining(["id", "userName", "active"]));
  expect(only.body.emails).toBeUndefined();
});
