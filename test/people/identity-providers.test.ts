import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { askDashboard } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type OidcIssuer, startOidcIssuer } from "../support/oidc-issuer.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";
import {
  browserOf,
  followPasswordLink,
  type Json,
  joined,
  manage,
  type SignedInPerson,
  signInWith,
  uniqueEmail,
} from "./people.ts";

let gateway: TestGateway;
let operator: string;
let first: OidcIssuer;
let second: OidcIssuer;
let organizationId: string;
let attempts = 0;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" } });
  operator = await addOperator(gateway);
  [first, second] = await Promise.all([startOidcIssuer(), startOidcIssuer()]);
  ({ organizationId } = gateway);
});
afterAll(async () => {
  await gateway.stop();
  await first.stop();
  await second.stop();
});
beforeEach(() => {
  attempts += 1;
});

const admin = (method: string, path: string, body?: unknown) =>
  manage(gateway, method, `admin/${path}`, body, operator);

async function addProvider(issuer: OidcIssuer, rules: readonly Json[], more: Json = {}) {
  const created = await admin("POST", "identity_providers", {
    ...{ name: crypto.randomUUID(), issuer: issuer.url },
    ...{ client_id: issuer.clientId, client_secret: issuer.clientSecret, rules },
    ...more,
  });
  expect(created.status).toBe(201);
  expect(JSON.stringify(created.body)).not.toContain(issuer.clientSecret);
  return created.body as Json & { readonly id: string };
}

const get = (path: string | URL, cookie?: string) =>
  fetch(new URL(path, gateway.baseUrl), {
    redirect: "manual",
    headers: {
      "x-forwarded-for": `198.51.100.${attempts}`,
      "sec-fetch-site": "cross-site",
      ...(cookie !== undefined && { cookie }),
    },
  });
const cookieOf = (response: Response, name: string) =>
  response.headers
    .getSetCookie()
    .find((one) => one.startsWith(`${name}=`))
    ?.split(";")[0];

/** Returns the answer of the callback after the issuer has signed this user in. */
async function returned(issuer: OidcIssuer, id: string, claims: Json): Promise<Response> {
  const { answer, cookie } = await authorized(issuer, id, claims);
  return get(answer, cookie);
}

async function authorized(issuer: OidcIssuer, id: string, claims: Json) {
  const begun = await get(`/dashboard/sign-on/${id}`);
  expect(begun.status, await begun.clone().text()).toBe(302);
  const answer = issuer.authorize(begun.headers.get("location")!, claims);
  return { answer, cookie: cookieOf(begun, "gateway_sign_on") };
}

async function signIn(issuer: OidcIssuer, id: string, claims: Json): Promise<SignedInPerson> {
  const response = await returned(issuer, id, claims);
  expect(response.status, await response.clone().text()).toBe(302);
  const cookie = cookieOf(response, "gateway_session")!;
  const state = await askDashboard(gateway, "GET", "session", undefined, { cookie });
  const named = new Response(await state.text(), { headers: { "set-cookie": `${cookie};` } });
  return browserOf(gateway, named, claims.email);
}

const userOf = (groups: readonly string[], more: Json = {}) => {
  const email = uniqueEmail();
  return { sub: email, email, email_verified: true, name: "Ada", groups, ...more };
};

test("groups give roles and teams at two issuers, and a group that is left takes them away", async () => {
  const team = (await manage(gateway, "POST", "teams", { name: crypto.randomUUID() })).body;
  const grants = { organization_id: organizationId };
  const rules = [
    { claim: "groups", value: "devs", role: "developer", team_ids: [team.id], ...grants },
    { claim: "groups", value: "admins", role: "admin", ...grants },
    { claim: "groups", value: "ops", operator_role: "operator" },
  ];
  const [one, two] = [await addProvider(first, rules), await addProvider(second, rules)];
  const listed = (await (await askDashboard(gateway, "GET", "sign_in")).json()) as Json;
  expect(listed.providers.map(({ id }: Json) => id)).toEqual(
    expect.arrayContaining([one.id, two.id]),
  );
  const claims = userOf(["devs", "admins", ...Array.from({ length: 200 }, (_, at) => `g${at}`)]);
  const both = await signIn(first, one.id, claims);
  expect(both.state.person).toMatchObject({ role: "admin" });
  const member = await manage(gateway, "GET", `members/${both.state.person.member_id}`);
  expect(member.body).toMatchObject({ name: "Ada", teams: [{ id: team.id, role: "member" }] });
  const dev = await signIn(first, one.id, { ...claims, groups: ["devs"] });
  expect(dev.state.person.role).toBe("developer");
  const made = await dev.call("POST", "v1/keys", { name: crypto.randomUUID() });
  const { key } = (await made.json()) as Json;
  const rejected = await returned(first, one.id, { ...claims, groups: [] });
  expect(rejected.status).toBe(403);
  expect((await dev.call("GET", "v1/keys")).status).toBe(401);
  await until(
    "the key stops",
    async () => (await manage(gateway, "GET", "models", undefined, key)).status === 401,
    1_000,
  );
  // The same address at the other issuer is the same account.
  const there = await signIn(second, two.id, { ...claims, sub: "elsewhere", groups: ["ops"] });
  expect(there.state).toMatchObject({ kind: "operator", person: { id: dev.state.person.id } });
  const gone = await returned(second, two.id, { ...claims, sub: "elsewhere", groups: [] });
  expect(gone.status).toBe(403);
  expect((await there.call("GET", "v1/admin/organizations")).status).toBe(401);
});

test("roles that come from elsewhere are neither raised nor taken away", async () => {
  const invited = await joined(gateway, "viewer");
  const rule = { claim: "groups", value: "admins", role: "admin", organization_id: organizationId };
  const { id } = await addProvider(first, [rule]);
  const claims = userOf(["admins"], { email: invited.email, sub: invited.email });
  const person = await signIn(first, id, claims);
  expect(person.state.person).toMatchObject({ role: "viewer", id: invited.state.person.id });
  expect((await returned(first, id, { ...claims, groups: [] })).status).toBe(403);
  const path = `members/${invited.state.person.member_id}`;
  expect((await manage(gateway, "GET", path)).body.role).toBe("viewer");
  // The address was not verified before, so whoever chose the password is out.
  expect((await signInWith(gateway, invited.email)).status).toBe(401);
});

test("an address that is not verified opens no account, and takes over none", async () => {
  const victim = await joined(gateway, "owner");
  const rule = { claim: "groups", value: "all", role: "viewer", organization_id: organizationId };
  const { id } = await addProvider(first, [rule]);
  const claims = userOf(["all"], { email: victim.email, sub: "attacker" });
  for (const email_verified of [false, undefined, "no"]) {
    const response = await returned(first, id, { ...claims, email_verified });
    expect(response.status).toBe(403);
  }
  const trusting = await addProvider(second, [rule], { vouches_for_email: true });
  const trusted = await signIn(second, trusting.id, { ...claims, email_verified: undefined });
  expect(trusted.state.person.id).toBe(victim.state.person.id);
});

test("the answer for one provider does not count for another, and a deleted one signs nobody in", async () => {
  const rule = { claim: "groups", value: "all", role: "viewer", organization_id: organizationId };
  const [one, two] = [await addProvider(first, [rule]), await addProvider(second, [rule])];
  const begun = await get(`/dashboard/sign-on/${one.id}`);
  const answer = first.authorize(begun.headers.get("location")!, userOf(["all"]));
  answer.pathname = answer.pathname.replace(one.id, two.id);
  expect((await get(answer, cookieOf(begun, "gateway_sign_on"))).status).toBe(403);
  expect((await admin("DELETE", `identity_providers/${one.id}`)).status).toBe(200);
  expect((await get(`/dashboard/sign-on/${one.id}`)).status).toBe(404);
});

test("providers are changed by operators only, and invalid ones are rejected", async () => {
  const { id } = await addProvider(first, []);
  const changed = await admin("PATCH", `identity_providers/${id}`, { scopes: "openid email" });
  expect(changed.body).toMatchObject({ id, scopes: "openid email" });
  const body = { name: "x", client_id: "c", client_secret: "s", issuer: "http://example.com" };
  expect((await admin("POST", "identity_providers", body)).body.error.param).toBe("issuer");
  const rules = [{ claim: "groups", value: "x", role: "king", organization_id: organizationId }];
  expect((await admin("PATCH", `identity_providers/${id}`, { rules })).status).toBe(400);
  const both = { ...rules[0], role: "viewer", operator_role: "operator" };
  const mixed = await admin("PATCH", `identity_providers/${id}`, { rules: [both] });
  expect(mixed).toMatchObject({ status: 400, body: { error: { param: "rules.0" } } });
  const owner = await joined(gateway, "owner");
  expect((await owner.call("GET", "v1/admin/identity_providers")).status).toBe(403);
  const [row] = await gateway.sql`SELECT secret FROM identity_providers WHERE id = ${id}`;
  expect(Buffer.from(row!.secret).toString("latin1")).not.toContain(first.clientSecret);
});

const groupRule = (value: string, role: string, more: Json = {}) => ({
  ...{ claim: "groups", value, role, organization_id: organizationId },
  ...more,
});
const memberOf = async (person: SignedInPerson) =>
  (await manage(gateway, "GET", `members/${person.state.person.member_id}`)).body;

/** Gives a person a password, and signs in with it. */
async function byPassword(person: SignedInPerson): Promise<SignedInPerson> {
  const link = await admin("POST", "password_links", { email: person.email });
  await followPasswordLink(gateway, link.body as { url: string });
  return browserOf(gateway, await signInWith(gateway, person.email), person.email);
}

test("deleting a provider takes away what only its rules granted, in every session and from every key", async () => {
  const team = (await manage(gateway, "POST", "teams", { name: crypto.randomUUID() })).body;
  const [one, two] = [
    await addProvider(first, [
      groupRule("devs", "developer", { team_ids: [team.id] }),
      groupRule("admins", "admin"),
    ]),
    await addProvider(second, [groupRule("devs", "viewer")]),
  ];
  const only = await byPassword(await signIn(first, one.id, userOf(["devs"])));
  const { key } = (await (
    await only.call("POST", "v1/keys", { name: crypto.randomUUID() })
  ).json()) as Json;
  const claims = userOf(["admins", "devs"]);
  const both = await signIn(first, one.id, claims);
  await signIn(second, two.id, claims);
  expect(await memberOf(both)).toMatchObject({ role: "admin", teams: [{ id: team.id }] });
  const promoted = await signIn(first, one.id, userOf(["devs"]));
  const path = `members/${promoted.state.person.member_id}`;
  expect((await manage(gateway, "PATCH", path, { role: "admin" })).status).toBe(200);

  const deleted = await admin("DELETE", `identity_providers/${one.id}`);
  expect(deleted.body).toEqual({
    ...{ id: one.id, deleted: true },
    ...{ memberships_ended: 1, organizations_without_owner: [] },
  });
  expect((await only.call("GET", "v1/keys")).status).toBe(401);
  expect((await signInWith(gateway, only.email)).status).toBe(403);
  await until(
    "the key stops",
    async () => (await manage(gateway, "GET", "models", undefined, key)).status === 401,
    1_000,
  );
  expect(await memberOf(both)).toMatchObject({ role: "viewer", teams: [] });
  expect(await memberOf(promoted)).toMatchObject({ role: "admin", teams: [{ id: team.id }] });
});

test("a role ends with the rule that granted it, without another sign-in", async () => {
  const rules = [
    groupRule("admins", "admin"),
    groupRule("devs", "developer"),
    { claim: "groups", value: "ops", operator_role: "operator" },
  ];
  const { id } = await addProvider(first, rules);
  const [boss, dev] = [userOf(["admins"]), userOf(["devs", "admins"])];
  const [one, two] = [await signIn(first, id, boss), await signIn(first, id, dev)];
  const ops = await signIn(first, id, userOf(["ops"]));
  expect((await ops.call("GET", "v1/admin/organizations")).status).toBe(200);
  const left = [rules[1], groupRule("others", "owner")];
  expect((await admin("PATCH", `identity_providers/${id}`, { rules: left })).status).toBe(200);
  expect((await one.call("GET", "v1/keys")).status).toBe(401);
  expect((await ops.call("GET", "v1/admin/organizations")).status).toBe(401);
  expect(await memberOf(two)).toMatchObject({ role: "developer" });
});

test("a rule with another role and other teams changes memberships, and ends no keys", async () => {
  const team = (await manage(gateway, "POST", "teams", { name: crypto.randomUUID() })).body;
  const other = (await manage(gateway, "POST", "teams", { name: crypto.randomUUID() })).body;
  const rule = groupRule("devs", "developer", { team_ids: [team.id] });
  const { id } = await addProvider(first, [rule]);
  const person = await signIn(first, id, userOf(["devs"]));
  const made = await person.call("POST", "v1/keys", { name: crypto.randomUUID() });
  const { key } = (await made.json()) as Json;
  const changed = groupRule("devs", "admin", { team_ids: [other.id] });
  expect((await admin("PATCH", `identity_providers/${id}`, { rules: [changed] })).status).toBe(200);
  expect(await memberOf(person)).toMatchObject({ role: "admin", teams: [{ id: other.id }] });
  expect((await person.call("GET", "v1/members")).status).toBe(200);
  expect((await manage(gateway, "GET", "models", undefined, key)).status).toBe(200);
});

test("an admin's role and teams survive leaving the group, and a second account at an issuer replaces the first", async () => {
  const [granted, added] = [
    (await manage(gateway, "POST", "teams", { name: crypto.randomUUID() })).body,
    (await manage(gateway, "POST", "teams", { name: crypto.randomUUID() })).body,
  ];
  const { id } = await addProvider(first, [
    groupRule("devs", "developer", { team_ids: [granted.id] }),
    groupRule("all", "viewer"),
  ]);
  const claims = userOf(["devs", "all"]);
  const person = await signIn(first, id, claims);
  const path = `members/${person.state.person.member_id}`;
  const teams = [
    { id: granted.id, role: "member" },
    { id: added.id, role: "lead" },
  ];
  expect((await manage(gateway, "PATCH", path, { teams })).status).toBe(200);
  await signIn(first, id, { ...claims, groups: ["all"] });
  expect(await memberOf(person)).toMatchObject({
    role: "viewer",
    teams: [{ id: added.id, role: "lead" }],
  });
  // The issuer has created the user again, with another subject.
  await signIn(first, id, { ...claims, sub: `${claims.sub}-2`, groups: ["devs"] });
  expect(await memberOf(person)).toMatchObject({ role: "developer" });
  await signIn(first, id, { ...claims, sub: `${claims.sub}-2`, groups: ["all"] });
  expect(await memberOf(person)).toMatchObject({ role: "viewer" });
});

test("an organization whose last owner came from a deleted provider is named, and operators invite another", async () => {
  const organization = (await admin("POST", "organizations", { name: "Acme" })).body.organization;
  const rule = groupRule("owners", "owner", { organization_id: organization.id });
  const { id } = await addProvider(first, [rule]);
  const owner = await signIn(first, id, userOf(["owners"]));
  expect((await owner.call("GET", "v1/members")).status).toBe(200);
  const deleted = await admin("DELETE", `identity_providers/${id}`);
  expect(deleted.body.organizations_without_owner).toEqual([organization.id]);
  expect((await owner.call("GET", "v1/members")).status).toBe(401);
  const body = { email: uniqueEmail(), role: "owner" };
  const invited = await admin("POST", `organizations/${organization.id}/invitations`, body);
  expect(invited.status).toBe(201);
});

test("an account that an earlier version stored loses its role with its provider", async () => {
  const { id } = await addProvider(first, [groupRule("devs", "developer")]);
  const claims = userOf(["devs"]);
  const person = await signIn(first, id, claims);
  await gateway.sql`UPDATE person_identities SET met_rules = NULL WHERE provider_id = ${id}`;
  expect((await admin("PATCH", `identity_providers/${id}`, { scopes: "openid" })).status).toBe(200);
  expect((await person.call("GET", "v1/keys")).status).toBe(200);
  expect((await admin("DELETE", `identity_providers/${id}`)).status).toBe(200);
  expect((await person.call("GET", "v1/keys")).status).toBe(401);
});

test("sign-ins while a provider is deleted leave no role", async () => {
  const { id } = await addProvider(first, [groupRule("devs", "developer")]);
  const users = Array.from({ length: 5 }, () => userOf(["devs"]));
  const begun = await Promise.all(users.map((claims) => authorized(first, id, claims)));
  const answers = await Promise.all([
    ...begun.map(({ answer, cookie }) => get(answer, cookie)),
    admin("DELETE", `identity_providers/${id}`),
  ]);
  expect(answers[5]!.status).toBe(200);
  for (const { status } of answers.slice(0, 5)) expect([302, 403, 404]).toContain(status);
  const left = await gateway.sql`SELECT 1 FROM members WHERE identity_provider_id = ${id}
    AND deleted_at IS NULL`;
  expect(left).toHaveLength(0);
});
