import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { TOTP } from "otpauth";
import { firstOperatorLink } from "../../src/accounts/people/accounts.ts";
import { askDashboard } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";
import {
  anyAddress,
  browserOf,
  invite,
  type Json,
  joined,
  manage,
  PASSWORD,
  signInWith,
  uniqueEmail,
} from "./people.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" },
  });
});
afterAll(() => gateway.stop());

const ask = (path: string, body: unknown) =>
  askDashboard(gateway, "POST", path, body, anyAddress());
const codeOf = async (response: Response) => ((await response.json()) as Json).error?.code;

describe("an invitation", () => {
  test("creates an account with its role, once, and the account signs in", async () => {
    const { email, token, id } = await invite(gateway, "admin");
    const shown = await ask("invitation", { token });
    expect(await shown.json()).toMatchObject({ email, role: "admin", has_account: false });
    const body = { token, name: "Ada", password: PASSWORD };
    const person = await browserOf(gateway, await ask("invitation/accept", body), email);
    expect(person.state).toMatchObject({ kind: "organization", person: { email, role: "admin" } });
    expect(await codeOf(await ask("invitation/accept", body))).toBe("link_expired");
    const listed = await manage(gateway, "GET", "invitations");
    expect(listed.body.data.find((one: Json) => one.id === id)).toMatchObject({
      accepted_at: expect.any(String),
    });
    expect(JSON.stringify(listed.body)).not.toContain(token);
    const again = await browserOf(gateway, await signInWith(gateway, email.toUpperCase()), email);
    expect((await again.call("GET", "v1/members")).status).toBe(200);
    const members = await manage(gateway, "GET", "members");
    expect(members.body.data.find((one: Json) => one.email === email)).toEqual({
      id: expect.stringMatching(/^mem_/),
      ...{ email, name: "Ada", role: "admin", teams: [] },
      ...{ daily_budget_usd: null, monthly_budget_usd: null, is_active: true },
      ...{ last_sign_in_at: expect.any(String), created_at: expect.any(String) },
    });
  });

  test("does not work after it was withdrawn, replaced or has expired", async () => {
    const first = await invite(gateway, "viewer");
    const second = await invite(gateway, "viewer", { email: first.email });
    expect(await codeOf(await ask("invitation", { token: first.token }))).toBe("link_expired");
    await manage(gateway, "DELETE", `invitations/${second.id}`);
    expect(await codeOf(await ask("invitation", { token: second.token }))).toBe("link_expired");
    const third = await invite(gateway, "viewer");
    await gateway.sql`UPDATE invitations SET expires_at = now() - interval '1 s' WHERE id = ${third.id}`;
    expect(await codeOf(await ask("invitation", { token: third.token }))).toBe("link_expired");
  });

  test("is accepted once if two accept it at the same time", async () => {
    const { token } = await invite(gateway, "viewer");
    const body = { token, name: "Twice", password: PASSWORD };
    const answers = await Promise.all([1, 2, 3].map(() => ask("invitation/accept", body)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404]);
  });

  test("to a person with an account needs that account's password, and adds a membership", async () => {
    const person = await joined(gateway, "viewer");
    const other = await gateway.addOrganization();
    const { token } = await invite(gateway, "owner", {
      email: person.email,
      key: other.managementKey,
    });
    const wrong = await ask("invitation/accept", { token, password: "not the right password" });
    expect(await codeOf(wrong)).toBe("invalid_credentials");
    const response = await ask("invitation/accept", { token, password: PASSWORD });
    const accepted = await browserOf(gateway, response, person.email);
    expect(accepted.state.person.role).toBe("owner");
    expect(accepted.state.person.holders).toHaveLength(2);
    const holder = accepted.state.person.holders.find(
      ({ id }: Json) => id !== accepted.state.person.member_id,
    );
    const switched = await accepted.call("POST", "session/switch", { holder_id: holder.id });
    const viewer = await browserOf(gateway, switched, person.email);
    expect(viewer.state.person.role).toBe("viewer");
    // The token before the switch opens nothing, and no one switches to what is not theirs.
    expect((await accepted.call("GET", "v1/members")).status).toBe(401);
    const stolen = await viewer.call("POST", "session/switch", { holder_id: "operator" });
    expect(stolen.status).toBe(403);
  });
});

describe("passwords", () => {
  test("that are wrong and addresses without an account get the same answer in about the same time", async () => {
    const { email } = await joined(gateway, "viewer");
    const timeOf = async (address: string) => {
      const startedMs = performance.now();
      const response = await signInWith(gateway, address, "not the right password");
      const tookMs = performance.now() - startedMs;
      const { request_id: _, ...body } = (await response.json()) as Json;
      return { status: response.status, body, tookMs };
    };
    await timeOf(uniqueEmail());
    const [known, unknown] = [await timeOf(email), await timeOf(uniqueEmail())];
    expect({ ...known, tookMs: 0 }).toEqual({ ...unknown, tookMs: 0 });
    expect(known).toMatchObject({ status: 401, body: { error: { code: "invalid_credentials" } } });
    // A hash takes tens of milliseconds, an answer without one less than five.
    expect(unknown.tookMs).toBeGreaterThan(known.tookMs / 3);
  });

  test("of one account are tried five times a minute, from whichever address", async () => {
    const { email } = await joined(gateway, "viewer");
    const statuses: number[] = [];
    for (let at = 0; at < 7; at += 1) {
      statuses.push((await signInWith(gateway, email, "not the right password")).status);
    }
    expect(statuses.slice(-2)).toEqual([429, 429]);
    expect((await signInWith(gateway, email)).status).toBe(429);
  });

  test("that are short are rejected, and no answer or row contains one", async () => {
    const { token } = await invite(gateway, "viewer");
    const short = await ask("invitation/accept", { token, name: "Ada", password: "too short" });
    expect(short.status).toBe(400);
    const { email } = await joined(gateway, "viewer");
    const [row] = await gateway.sql`SELECT password_hash FROM people WHERE email = ${email}`;
    expect(row!.password_hash).toStartWith("$argon2id$");
  });

  test("are changed with the current one, which ends the other sessions", async () => {
    const person = await joined(gateway, "viewer");
    const other = await browserOf(gateway, await signInWith(gateway, person.email), person.email);
    const change = (current_password: string) =>
      person.call("POST", "account/password", { current_password, password: "another password!" });
    expect((await change("not the right password")).status).toBe(400);
    expect((await change(PASSWORD)).status).toBe(200);
    expect((await other.call("GET", "account")).status).toBe(401);
    expect((await person.call("GET", "account")).status).toBe(200);
    expect((await signInWith(gateway, person.email)).status).toBe(401);
    expect((await signInWith(gateway, person.email, "another password!")).status).toBe(200);
  });
});

test("a second factor is asked for, and a code counts once", async () => {
  const person = await joined(gateway, "viewer");
  const made = (await (await person.call("POST", "account/second_factor/new", {})).json()) as Json;
  const totp = new TOTP({ secret: made.secret });
  expect(made.url).toStartWith("otpauth://totp/");
  const add = (code: string) =>
    person.call("POST", "account/second_factor", {
      ...{ secret: made.secret, code, current_password: PASSWORD },
    });
  expect((await add("000000")).status).toBe(400);
  expect((await add(totp.generate())).status).toBe(200);
  const [row] = await gateway.sql`SELECT totp_secret FROM people WHERE email = ${person.email}`;
  expect(Buffer.from(row!.totp_secret).toString("latin1")).not.toContain(made.secret);
  expect(await codeOf(await signInWith(gateway, person.email))).toBe("second_factor_required");
  const code = totp.generate();
  expect((await signInWith(gateway, person.email, PASSWORD, code)).status).toBe(200);
  expect(await codeOf(await signInWith(gateway, person.email, PASSWORD, code))).toBe(
    "invalid_credentials",
  );
});

test("the first operator gets an account by a link, once, and owns the first organization", async () => {
  const newLink = () => gateway.sql.begin((sql) => firstOperatorLink(sql, Date.now()));
  const token = await newLink();
  const email = uniqueEmail();
  const body = { token, email, name: "Grace", password: PASSWORD };
  const response = await ask("first_operator", body);
  const operator = await browserOf(gateway, response, email);
  expect(operator.state).toMatchObject({ kind: "operator", person: { email, role: "operator" } });
  expect((await operator.call("GET", "v1/admin/organizations")).status).toBe(200);
  const [holder] = operator.state.person.holders.filter(({ id }: Json) => id !== "operator");
  const switched = await operator.call("POST", "session/switch", { holder_id: holder.id });
  expect((await browserOf(gateway, switched, email)).state.person.role).toBe("owner");
  expect((await ask("first_operator", { ...body, email: uniqueEmail() })).status).toBe(404);
  expect(await newLink()).toBeUndefined();
});

test("operators invite the first owner, make links for passwords, and manage operators", async () => {
  const operator = await addOperator(gateway);
  const admin = (method: string, path: string, body?: unknown) =>
    manage(gateway, method, `admin/${path}`, body, operator);
  const organizationId = (await gateway.addOrganization()).organization.id;
  const email = uniqueEmail();
  const path = `organizations/${organizationId}/invitations`;
  const invited = await admin("POST", path, { email, role: "owner" });
  const token = invited.body.url.split("#")[1];
  const body = { token, name: "Owner", password: PASSWORD };
  const owner = await browserOf(gateway, await ask("invitation/accept", body), email);
  expect(owner.state.person.role).toBe("owner");
  const unknown = await admin("POST", "organizations/org_0/invitations", { email, role: "owner" });
  expect(unknown.body.error.code).toBe("organization_not_found");

  const link = (await admin("POST", "password_links", { email })).body.url.split("#")[1];
  const reset = { token: link, password: "yet another password" };
  expect((await ask("password/reset", reset)).status).toBe(200);
  expect((await ask("password/reset", reset)).status).toBe(404);
  expect((await owner.call("GET", "account")).status).toBe(401);

  const made = await admin("POST", "operators", { email, role: "operator_viewer" });
  expect(made).toMatchObject({ status: 201, body: { email, role: "operator_viewer" } });
  const signedIn = await signInWith(gateway, email, "yet another password");
  const viewer = await browserOf(gateway, signedIn, email);
  expect((await viewer.call("GET", "v1/admin/organizations")).status).toBe(200);
  const changed = await viewer.call("POST", "v1/admin/operators", { email, role: "operator" });
  expect(changed.status).toBe(403);
  const { id } = viewer.state.person;
  await admin("POST", "operators", { email, role: "operator" });
  const listed = await admin("GET", "operators");
  for (const other of listed.body.data.filter((one: Json) => one.id !== id)) {
    expect((await admin("DELETE", `operators/${other.id}`)).status).toBe(200);
  }
  const last = await admin("DELETE", `operators/${id}`);
  expect(last).toMatchObject({ status: 409, body: { error: { code: "last_owner" } } });
});

test("sessions and keys of a member who is deactivated or removed end within a second", async () => {
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
  const path = `members/${developer.state.person.member_id}`;
  await manage(gateway, "PATCH", path, { is_active: false });
  expect((await developer.call("GET", "account")).status).toBe(401);
  await until("the key stops", async () => (await chat()).status === 401, 1_000);
  expect((await signInWith(gateway, developer.email)).status).toBe(403);
  await manage(gateway, "PATCH", path, { is_active: true });
  await until("the key works again", async () => (await chat()).status === 200, 1_000);
  const back = await browserOf(
    gateway,
    await signInWith(gateway, developer.email),
    developer.email,
  );
  expect((await manage(gateway, "DELETE", path)).status).toBe(200);
  expect((await back.call("GET", "account")).status).toBe(401);
  await until("the key stops again", async () => (await chat()).status === 401, 1_000);
});

test("acts name the person, and sign-ins that fail are recorded", async () => {
  const admin = await joined(gateway, "admin");
  await admin.call("POST", "v1/teams", { name: crypto.randomUUID() });
  await signInWith(gateway, admin.email, "not the right password");
  const operator = await addOperator(gateway);
  const acts = await manage(gateway, "GET", "admin/audit_log?limit=100", undefined, operator);
  const find = (action: string) =>
    acts.body.data.find((act: Json) => act.action === action && act.actor.name === admin.email);
  expect(find("team.created").actor).toMatchObject({
    ...{ kind: "person", name: admin.email, via: "dashboard" },
    ...{ id: expect.stringMatching(/^usr_/), address: "127.0.0.1" },
    user_agent: expect.any(String),
  });
  expect(find("invitation.accepted")).toBeDefined();
  expect(find("session.started")).toBeDefined();
  expect(find("session.rejected").object.id).toMatch(/^usr_/);
});
