import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { askDashboard, signIn } from "../support/dashboard-session.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type OidcIssuer, startOidcIssuer, type TokenFault } from "../support/oidc-issuer.ts";

let issuer: OidcIssuer;
let gateway: TestGateway;

beforeAll(async () => {
  issuer = await startOidcIssuer();
  gateway = await startTestGateway({
    environment: {
      GATEWAY_OIDC_ISSUER: issuer.url,
      GATEWAY_OIDC_CLIENT_ID: issuer.clientId,
      GATEWAY_OIDC_CLIENT_SECRET: issuer.clientSecret,
      GATEWAY_OIDC_NAME: "Acme",
      GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8",
      GATEWAY_OIDC_ACCESS: `groups=admins:operator,groups=lost:org_0,groups=team:${ORGANIZATION},email=ada@acme.test:${ORGANIZATION}`,
    },
  });
  // The settings name an organization by its id, which is known once there is one.
  await gateway.sql`INSERT INTO organizations (id, name, plan) VALUES (${ORGANIZATION}, 'Acme', 'free')`;
  await gateway.sql`INSERT INTO accounts (id, kind, organization_id, credit_limit_nano)
    VALUES (${`org:${ORGANIZATION}`}, 'org', ${ORGANIZATION}, 0)`;
});
afterAll(async () => {
  await gateway.stop();
  await issuer.stop();
});
beforeEach(() => {
  issuer.isDown = false;
  issuer.userInfo = undefined;
  attempts++;
});

const ORGANIZATION = "org_0123456789abcdef0123456789abcdef";
const TEAM = { groups: ["others", "team"], email: "ada@acme.test" };
/** Attempts are counted by who sends them. */
let attempts = 0;

function get(path: string | URL, cookie?: string): Promise<Response> {
  const from = { "x-forwarded-for": `198.51.100.${attempts}` };
  const headers = { ...from, ...(cookie && { cookie }), "sec-fetch-site": "cross-site" };
  return fetch(new URL(path, gateway.baseUrl), { redirect: "manual", headers });
}

const cookieOf = (response: Response, name: string) =>
  response.headers.getSetCookie().find((cookie) => cookie.startsWith(`${name}=`));

async function begun() {
  const response = await get("/dashboard/sign-on");
  expect(response.status, await response.clone().text()).toBe(302);
  const page = response.headers.get("location")!;
  return { page, flow: cookieOf(response, "gateway_sign_on")! };
}

const bare = (cookie: string) => cookie.split(";")[0]!;

async function signedIn(claims: Record<string, unknown>, fault?: TokenFault) {
  const { page, flow } = await begun();
  return get(issuer.authorize(page, claims, fault), bare(flow));
}

async function expectRefused(response: Response, status: number, text: string): Promise<void> {
  expect(response.status).toBe(status);
  expect(response.headers.get("content-type")).toContain("text/html");
  expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
  expect(await response.text()).toContain(text);
  expect(cookieOf(response, "gateway_session")).toBeUndefined();
}

const UNVERIFIED = "could not be verified";

test("who signs in at the issuer manages the organization of the rule, by name in the audit log", async () => {
  const method = await askDashboard(gateway, "GET", "sign_in");
  expect(await method.json()).toMatchObject({ single_sign_on: "Acme" });
  const { page, flow } = await begun();
  expect(flow).toMatch(/; Path=\/; Max-Age=600; HttpOnly; SameSite=Lax$/);
  const asked = new URL(page).searchParams;
  expect(asked.get("code_challenge_method")).toBe("S256");
  expect(asked.get("redirect_uri")).toBe(`${gateway.baseUrl}/dashboard/sign-on/callback`);
  const response = await get(issuer.authorize(page, TEAM), bare(flow));
  expect(response.status, await response.clone().text()).toBe(302);
  expect(response.headers.get("location")).toBe("../../dashboard");
  const cookie = cookieOf(response, "gateway_session")!;
  expect(cookie).toMatch(/; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/);
  expect(cookieOf(response, "gateway_sign_on")).toContain("Max-Age=0");
  const state = await askDashboard(gateway, "GET", "session", undefined, { cookie: bare(cookie) });
  const session = (await state.json()) as { csrf_token: string };
  expect(session).toMatchObject({ kind: "organization", key: { name: "ada@acme.test" } });
  const headers = { cookie: bare(cookie), "x-csrf-token": session.csrf_token };
  const call = (method: string, path: string, body?: object) =>
    askDashboard(gateway, method, path, body, headers);
  expect((await call("POST", "v1/keys", { name: "server" })).status).toBe(201);
  expect((await call("GET", "v1/admin/organizations")).status).toBe(403);
  const listed = (await (await call("GET", "v1/audit_log")).json()) as { data: object[] };
  const actor = { kind: "subject", name: "ada@acme.test", via: "dashboard" };
  expect(listed.data).toMatchObject([
    { action: "key.created", organization_id: ORGANIZATION, actor },
    { action: "session.started", organization_id: ORGANIZATION, actor },
    { action: "organization.created" },
  ]);
  expect(await (await call("GET", "settings/sign-ins")).json()).toMatchObject({
    people: [{ name: "ada@acme.test", sessions: 1, last_seen_at: expect.any(String) }],
    keys: [],
  });
  // A rule that is gone takes its sessions with it.
  await gateway.sql`UPDATE dashboard_sessions
    SET subject = subject || '{"rule": "groups=gone:operator"}' WHERE subject IS NOT NULL`;
  expect((await call("GET", "v1/keys")).status).toBe(401);
});

test("a person's other sessions can be ended, and those of other organizations are not listed", async () => {
  const sessionOf = async (claims: Record<string, unknown>) => {
    attempts++;
    const cookie = bare(cookieOf(await signedIn(claims), "gateway_session")!);
    const state = await askDashboard(gateway, "GET", "session", undefined, { cookie });
    const { csrf_token: token, key } = (await state.json()) as {
      csrf_token: string;
      key: { id: string };
    };
    const headers = { cookie, "x-csrf-token": token };
    return {
      id: key.id,
      call: (method: string, path: string, body?: object) =>
        askDashboard(gateway, method, path, body, headers),
    };
  };
  const ada = await sessionOf(TEAM);
  const again = await sessionOf(TEAM);
  const operator = await sessionOf({ groups: "admins", sub: "user-2" });
  const path = `v1/admin/organizations/${ORGANIZATION}`;
  expect((await operator.call("PATCH", path, { max_keys: 77 })).status).toBe(200);
  const acts = (await (await ada.call("GET", "v1/audit_log?limit=1")).json()) as {
    data: { actor: object }[];
  };
  expect(acts.data[0]).toMatchObject({ action: "organization.updated", after: { max_keys: 77 } });
  // Where operators work from is not shown to organizations.
  expect(acts.data[0]!.actor).toMatchObject({ kind: "subject", address: null, user_agent: null });
  const stranger = await signIn(gateway, gateway.managementKey);
  const listed = (await (await stranger.call("GET", "settings/sign-ins")).json()) as object;
  expect(listed).toMatchObject({ people: [] });
  for (const id of [ada.id, operator.id]) {
    await expectError(
      await stranger.call("DELETE", `settings/sign-ins/${id}`),
      404,
      "key_not_found",
    );
  }
  await expectError(
    await ada.call("DELETE", `settings/sign-ins/${operator.id}`),
    404,
    "key_not_found",
  );
  const ended = await ada.call("DELETE", `settings/sign-ins/${ada.id}`);
  expect(((await ended.json()) as { ended: number }).ended).toBeGreaterThanOrEqual(1);
  expect((await again.call("GET", "v1/keys")).status).toBe(401);
  expect((await ada.call("GET", "v1/keys")).status).toBe(200);
});

test("an operator's rule gives an operator's session", async () => {
  const response = await signedIn({ groups: "admins" });
  const cookie = bare(cookieOf(response, "gateway_session")!);
  const state = await askDashboard(gateway, "GET", "session", undefined, { cookie });
  expect(await state.json()).toMatchObject({ kind: "operator", key: { name: "user-1" } });
});

test("who has no rule, or one of an organization that is not there, is refused", async () => {
  await expectRefused(await signedIn({ groups: ["others"] }), 403, "no access");
  await expectRefused(await signedIn({ groups: ["lost"] }), 403, "does not exist on this gateway");
});

const VOUCHED = { email: "ada@acme.test" };
test.each([[undefined], [false], ["false"], ["TRUE"], [1], [null]])(
  "an address whose email_verified is %p gives no access, and the log names the claims without values",
  async (verified) => {
    await expectRefused(await signedIn({ ...VOUCHED, email_verified: verified }), 403, "no access");
    const line = gateway.logLines.findLast((one) => one.includes("single sign-on rejected"))!;
    const { reason, claims } = JSON.parse(line) as { reason: string; claims: string[] };
    expect(reason).toContain("email_verified is not true");
    expect(claims).toContainValues(["email", "iss", "sub"]);
    expect(line).not.toContain("ada@acme.test");
  },
);

test.each([[true], ["true"]])("an address whose email_verified is %p counts", async (verified) => {
  expect((await signedIn({ ...VOUCHED, email_verified: verified })).status).toBe(302);
});

test("claims that the ID token lacks come from UserInfo, of the same person alone", async () => {
  issuer.userInfo = { sub: "user-1", groups: ["team"] };
  expect((await signedIn({})).status).toBe(302);
  issuer.userInfo = { sub: "user-1", ...VOUCHED, email_verified: true };
  expect((await signedIn({})).status).toBe(302);
  attempts++;
  for (const [claims, userInfo] of [
    [{}, { sub: "another", groups: ["team"] }],
    [{}, { sub: "user-1", ...VOUCHED }],
    [{ email_verified: true }, { sub: "user-1", ...VOUCHED }],
    [VOUCHED, { sub: "user-1", email: "other@acme.test", email_verified: true }],
    [{ groups: ["none"] }, { sub: "user-1", groups: ["team"] }],
  ]) {
    issuer.userInfo = userInfo;
    await expectRefused(await signedIn(claims!), 403, "no access");
    attempts++;
  }
});

test("an issuer that vouches for its addresses need not say that they are verified", async () => {
  const vouching = await startTestGateway({
    environment: {
      GATEWAY_OIDC_ISSUER: issuer.url,
      GATEWAY_OIDC_CLIENT_ID: issuer.clientId,
      GATEWAY_OIDC_CLIENT_SECRET: issuer.clientSecret,
      GATEWAY_OIDC_ACCESS: "email=ada@acme.test:operator",
      GATEWAY_OIDC_VERIFIED_EMAIL_ISSUERS: `https://login.example.com,${issuer.url}/`,
    },
  });
  try {
    const signIn = async (claims: Record<string, unknown>) => {
      const options = { redirect: "manual" } as const;
      const begin = await fetch(`${vouching.baseUrl}/dashboard/sign-on`, options);
      const back = issuer.authorize(begin.headers.get("location")!, claims);
      const cookie = bare(cookieOf(begin, "gateway_sign_on")!);
      return (await fetch(back, { ...options, headers: { cookie } })).status;
    };
    expect(await signIn(VOUCHED)).toBe(302);
    expect(await signIn({ ...VOUCHED, email_verified: false })).toBe(403);
  } finally {
    await vouching.stop();
  }
});

test("an answer with another state, or to another browser, signs no one in", async () => {
  const { page, flow } = await begun();
  const back = issuer.authorize(page, TEAM);
  const other = new URL(back);
  other.searchParams.set("state", "another");
  await expectRefused(await get(other, bare(flow)), 403, UNVERIFIED);
  await expectRefused(await get(back), 403, "not started in this browser");
  await expectRefused(await get(back, bare((await begun()).flow)), 403, UNVERIFIED);
});

test("a code is good once", async () => {
  const { page, flow } = await begun();
  const back = issuer.authorize(page, TEAM);
  expect((await get(back, bare(flow))).status).toBe(302);
  await expectRefused(await get(back, bare(flow)), 403, UNVERIFIED);
});

const FAULTS: TokenFault[] = ["audience", "issuer", "expired", "nonce", "unsigned", "foreign key"];
test.each(FAULTS)("an ID token of another %s signs no one in", async (fault) => {
  await expectRefused(await signedIn(TEAM, fault), 403, UNVERIFIED);
});

test("a person who cancels at the issuer sees why, and an issuer that is down is 502", async () => {
  const { page, flow } = await begun();
  const back = issuer.authorize(page, TEAM);
  const denied = new URL(back);
  denied.searchParams.delete("code");
  denied.searchParams.set("error", "access_denied");
  await expectRefused(await get(denied, bare(flow)), 403, "did not let you sign in");
  issuer.isDown = true;
  await expectRefused(await get(back, bare(flow)), 502, "cannot be reached");
});

test("nothing that a request states decides where the browser is sent", async () => {
  const response = await get("/dashboard/sign-on?next=https://evil.example&redirect_uri=https://x");
  expect(new URL(response.headers.get("location")!).origin).toBe(issuer.url);
  const logged = gateway.logLines.join("\n");
  expect(logged).toContain("single sign-on rejected");
  expect(logged).not.toContain(issuer.clientSecret);
});

test("an issuer that was never reached is 502, and keys still sign in", async () => {
  const cut = await startTestGateway({
    environment: {
      // No server listens on the discard port.
      GATEWAY_OIDC_ISSUER: "http://127.0.0.1:9",
      GATEWAY_OIDC_CLIENT_ID: "gateway",
      GATEWAY_OIDC_CLIENT_SECRET: "secret",
      GATEWAY_OIDC_ACCESS: "groups=admins:operator",
    },
  });
  try {
    const response = await fetch(`${cut.baseUrl}/dashboard/sign-on`, { redirect: "manual" });
    await expectRefused(response, 502, "cannot be reached");
    await signIn(cut, cut.managementKey);
  } finally {
    await cut.stop();
  }
});

test("without an issuer there is no way to it", async () => {
  const plain = await startTestGateway();
  try {
    expect((await fetch(`${plain.baseUrl}/dashboard/sign-on/callback`)).status).toBe(404);
    const method = await askDashboard(plain, "GET", "sign_in");
    expect(await method.json()).toMatchObject({ single_sign_on: null, providers: [] });
  } finally {
    await plain.stop();
  }
});
