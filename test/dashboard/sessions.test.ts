import { afterAll, beforeAll, expect, test } from "bun:test";
import { revokeOperatorKey } from "../../db/queries/operator-keys.ts";
import { senderOf } from "../../src/dashboard/browser.ts";
import { csrfTokenOf } from "../../src/dashboard/sessions.ts";
import { networkCheck } from "../../src/lib/public-address.ts";
import { addKeyOf } from "../support/api-keys.ts";
import { askDashboard, type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";

let gateway: TestGateway;
let browser: DashboardBrowser;
beforeAll(async () => {
  gateway = await startTestGateway();
  browser = await signIn(gateway, gateway.managementKey);
});
afterAll(() => gateway.stop());

const MADE_UP = "A".repeat(43);

/** An hour and more can be waited for in the database alone. */
const age = (column: "created_at" | "last_used_at", interval: string) =>
  gateway.sql.unsafe(
    `UPDATE dashboard_sessions SET ${column} = ${column} - interval '${interval}'`,
  );

test("the token of a session is in no table", async () => {
  const token = browser.cookie.split("=")[1]!;
  const rows = await gateway.sql`SELECT * FROM dashboard_sessions`;
  expect(rows.length).toBeGreaterThan(0);
  for (const secret of [token, browser.csrfToken]) {
    expect(JSON.stringify(rows)).not.toContain(secret);
    expect(gateway.logLines.join("")).not.toContain(secret);
  }
});

test("a session does what its key may do, as long as it states its CSRF token", async () => {
  const listed = await browser.call("GET", "v1/keys");
  expect(listed.status).toBe(200);
  expect(listed.headers.get("cache-control")).toBe("no-store");
  const created = await browser.call("POST", "v1/keys", { name: "made here" });
  expect(created.status).toBe(201);
  const { id } = (await created.json()) as { id: string };
  const other = browser.csrfToken.replace(/.$/, (last) => (last === "A" ? "B" : "A"));
  for (const token of [undefined, "", "short", other]) {
    for (const [method, path] of [
      ["GET", "v1/keys"],
      ["DELETE", `v1/keys/${id}`],
      ["GET", "events"],
      ["DELETE", "session"],
    ] as const) {
      const refused = await browser.call(method, path, undefined, { "x-csrf-token": token });
      await expectError(refused, 403, "invalid_csrf_token");
    }
  }
  expect((await browser.call("DELETE", `v1/keys/${id}`)).status).toBe(200);
});

test("after a reload the session gives its CSRF token again", async () => {
  const again = await browser.call("GET", "session", undefined, { "x-csrf-token": undefined });
  expect(await again.json()).toMatchObject({
    kind: "organization",
    csrf_token: browser.csrfToken,
    test_payments: true,
  });
});

test("the session states its end: an hour after its last use, at most 12 hours after its start", async () => {
  const state = await (await browser.call("GET", "session")).json();
  const { ends_at: endsAt, expires_at: expiresAt } = state as Record<string, string>;
  const minutesFromNow = (iso: string) => (Date.parse(iso) - Date.now()) / 60_000;
  expect(minutesFromNow(endsAt!)).toBeWithin(58, 60.1);
  expect(minutesFromNow(expiresAt!)).toBeWithin(710, 720.1);
});

test.each([
  ["another site", { "sec-fetch-site": "cross-site" }],
  ["another port", { "sec-fetch-site": "same-site" }],
  ["an address bar", { "sec-fetch-site": "none" }],
  ["another origin", { "sec-fetch-site": undefined, origin: "http://127.0.0.1:1" }],
  ["an opaque origin", { "sec-fetch-site": undefined, origin: "null" }],
  ["another site that claims the origin", { "sec-fetch-site": "cross-site", origin: "self" }],
  ["where nothing says", { "sec-fetch-site": undefined }],
] as const)("a request from %s is refused, whatever it brings", async (_, headers) => {
  const stated = { ...headers } as Record<string, string | undefined>;
  if (stated.origin === "self") stated.origin = gateway.baseUrl;
  for (const [method, path, body] of [
    ["GET", "session"],
    ["GET", "sign_in"],
    ["GET", "v1/keys"],
    ["POST", "v1/keys", { name: "from elsewhere" }],
    ["POST", "session", { key: gateway.managementKey }],
  ] as const) {
    await expectError(await browser.call(method, path, body, stated), 403, "cross_origin");
  }
});

test("where a browser states no site, its origin counts", async () => {
  const headers = { "sec-fetch-site": undefined, origin: gateway.baseUrl };
  expect((await browser.call("GET", "v1/keys", undefined, headers)).status).toBe(200);
});

test("without a session everything is 401, also with a key in its usual header", async () => {
  for (const [method, path] of [
    ["GET", "session"],
    ["DELETE", "session"],
    ["GET", "events"],
    ["GET", "v1/keys"],
    ["GET", "v1/admin/organizations"],
  ] as const) {
    for (const headers of [
      {},
      { cookie: "gateway_session=" },
      { cookie: `gateway_session=${MADE_UP}`, "x-csrf-token": csrfTokenOf(MADE_UP) },
      { authorization: `Bearer ${gateway.managementKey}`, "sec-fetch-site": undefined },
      // The name of a session over https opens none here.
      { cookie: `__Host-${browser.cookie}`, "x-csrf-token": browser.csrfToken },
    ]) {
      const response = await askDashboard(gateway, method, path, undefined, headers);
      await expectError(response, 401, "no_session");
    }
  }
});

test("a session reaches no model endpoint, and its cookie opens no route of the API", async () => {
  const body = { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }] };
  for (const path of ["v1/chat/completions", "v1/embeddings", "v1/files", "v1/responses"]) {
    await expectError(await browser.call("POST", path, body), 404, "route_not_found");
  }
  const direct = await fetch(`${gateway.baseUrl}/v1/keys`, {
    headers: { cookie: browser.cookie, "x-csrf-token": browser.csrfToken },
  });
  await expectError(direct, 401, "missing_api_key");
});

test("a session of one organization reaches nothing of another, nor an operator's routes", async () => {
  const other = await gateway.addOrganization();
  const theirs = await gateway.request(
    "POST",
    "/v1/keys",
    { name: "theirs" },
    { key: other.managementKey },
  );
  const { id } = (await theirs.json()) as { id: string };
  for (const method of ["GET", "DELETE"]) {
    await expectError(await browser.call(method, `v1/keys/${id}`), 404, "key_not_found");
  }
  await expectError(await browser.call("GET", "v1/admin/organizations"), 403, "wrong_key_kind");
});

test("signing out ends the session, on every instance, because its row is gone", async () => {
  const other = await signIn(gateway, gateway.managementKey);
  const left = await other.call("DELETE", "session");
  expect(left.headers.get("set-cookie")).toContain("gateway_session=; Path=/; Max-Age=0;");
  await expectError(await other.call("GET", "v1/keys"), 401, "no_session");
  expect((await browser.call("GET", "v1/keys")).status).toBe(200);
});

test("a session ends with its key, and so does what it follows", async () => {
  const secret = await addKeyOf("management", gateway, { name: "short-lived" });
  const short = await signIn(gateway, secret);
  const stream = await short.call("GET", "events");
  expect(stream.status).toBe(200);
  const text = stream.text();
  const keys = (await (await browser.call("GET", "v1/keys?limit=100")).json()) as {
    data: { id: string; name: string }[];
  };
  const { id } = keys.data.find(({ name }) => name === "short-lived")!;
  expect((await browser.call("DELETE", `v1/keys/${id}`)).status).toBe(200);
  await expectError(await short.call("GET", "v1/keys"), 401, "invalid_api_key");
  expect(await text).toEndWith("event: ended\ndata: {}\n\n");
});

test("a stream reports that figures have changed", async () => {
  const stream = await browser.call("GET", "events");
  const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
  let received = "";
  void (async () => {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      received += value;
    }
  })().catch(() => {});
  await until("the stream begins", () => received.includes("event: open"));
  const body = { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }] };
  await until("a change is reported", async () => {
    expect((await gateway.request("POST", "/v1/chat/completions", body)).status).toBe(200);
    return received.includes("event: changed");
  });
  await reader.cancel();
});

test("an operator's session reaches operators' routes alone, and ends with its key", async () => {
  const operator = await signIn(gateway, await addOperator(gateway));
  const state = (await (await operator.call("GET", "session")).json()) as { key: { id: string } };
  expect(state).toMatchObject({ kind: "operator", csrf_token: operator.csrfToken });
  expect((await operator.call("GET", "v1/admin/organizations")).status).toBe(200);
  await expectError(await operator.call("GET", "v1/keys"), 403, "wrong_key_kind");
  const stream = (await operator.call("GET", "events")).text();
  await revokeOperatorKey(gateway.sql, state.key.id);
  await expectError(await operator.call("GET", "v1/admin/organizations"), 401, "no_session");
  expect(await stream).toEndWith("event: ended\ndata: {}\n\n");
});

test("a session ends after an hour without use; what pages load unasked is no use", async () => {
  const idle = await signIn(gateway, gateway.managementKey);
  await age("last_used_at", "30 minutes");
  const unasked = { "x-dashboard-unattended": "1" };
  expect((await idle.call("GET", "v1/keys", undefined, unasked)).status).toBe(200);
  await age("last_used_at", "31 minutes");
  await expectError(await idle.call("GET", "v1/keys"), 401, "no_session");
});

test("a session that is used ends after twelve hours, and is then removed", async () => {
  await gateway.sql`DELETE FROM dashboard_sessions`;
  const used = await signIn(gateway, gateway.managementKey);
  await age("last_used_at", "59 minutes");
  expect((await used.call("GET", "v1/keys")).status).toBe(200);
  await age("last_used_at", "59 minutes");
  await age("created_at", "11 hours 59 minutes");
  expect((await used.call("GET", "v1/keys")).status).toBe(200);
  await age("created_at", "2 minutes");
  await expectError(await used.call("GET", "v1/keys"), 401, "no_session");
  await signIn(gateway, gateway.managementKey);
  const [row] = await gateway.sql`SELECT count(*)::int AS count FROM dashboard_sessions`;
  expect(row!.count).toBe(1);
});

test("keys that cannot sign in say why, and an address has ten attempts a minute", async () => {
  const fresh = await startTestGateway();
  const attempt = (key: string) => askDashboard(fresh, "POST", "session", { key });
  try {
    await expectError(await attempt(fresh.secretKey), 403, "wrong_key_kind");
    await expectError(await attempt("no key\nat all"), 401, "invalid_api_key");
    const switchedOff = await addKeyOf("management", fresh, { isActive: false });
    await expectError(await attempt(switchedOff), 401, "key_inactive");
    await expectError(await attempt(`${fresh.managementKey}x`), 401, "invalid_api_key");
    const statuses: number[] = [];
    for (let i = 0; i < 8; i++) statuses.push((await attempt(fresh.managementKey)).status);
    expect(statuses.slice(0, 6)).toEqual(Array(6).fill(200));
    expect(statuses.slice(6)).toEqual([429, 429]);
    const refused = await attempt(fresh.managementKey);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    await expectError(refused, 429, "rate_limit_exceeded");
  } finally {
    await fresh.stop();
  }
});

test.each([
  [
    "a connection from elsewhere writes what it likes",
    "203.0.113.9",
    "198.51.100.1",
    "203.0.113.9",
  ],
  ["a proxy adds what it saw", "10.0.0.1", "198.51.100.1", "198.51.100.1"],
  ["a proxy adds to what its client wrote", "10.0.0.1", "192.0.2.7, 198.51.100.1", "198.51.100.1"],
  ["proxies stand in a row", "::ffff:10.0.0.1", "192.0.2.7, 198.51.100.1,10.9.9.9", "198.51.100.1"],
  ["a proxy adds nothing", "10.0.0.1", undefined, "10.0.0.1"],
  ["what comes is no address", "10.0.0.1", "192.0.2.7, unknown", "10.0.0.1"],
  ["a client has a network of IPv6", "10.0.0.1", "2001:db8:1:2:aa::1", "2001:db8:1:2::/64"],
])("attempts count by their sender where %s", (_, address, forwarded, sender) => {
  const headers = new Headers(forwarded === undefined ? {} : { "x-forwarded-for": forwarded });
  expect(senderOf({ headers }, address, networkCheck(["10.0.0.0/8"]))).toBe(sender);
});
