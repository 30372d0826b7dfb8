import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { csrfTokenOf } from "../../src/dashboard/sessions.ts";
import { askDashboard, type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { sendRaw } from "../support/raw-http.ts";
import { until } from "../support/until.ts";

/*
 * What a session is safe from: cookies of others, caches, other sites, and too many pages.
 */

let gateway: TestGateway;
let browser: DashboardBrowser;
beforeAll(async () => {
  gateway = await startTestGateway();
  browser = await signIn(gateway, gateway.managementKey);
});
afterAll(() => gateway.stop());

const MADE_UP = "A".repeat(43);

test("a session's cookie cannot be read by scripts or sent from other sites, and is secure beyond this machine", async () => {
  const key = JSON.stringify({ key: gateway.managementKey });
  const from = async (host: string, forwarded?: string, scheme = "https") => {
    const response = await sendRaw(gateway, {
      path: "/dashboard/api/session",
      host,
      headers: [
        ["content-type", "application/json"],
        ["origin", `${scheme}://${host}`],
        ...(forwarded ? [["x-forwarded-proto", forwarded] as const] : []),
      ],
      body: key,
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("cache-control")).toBe("no-store");
    return response.headers.get("set-cookie")!.replace(/=[\w-]{43};/, "=TOKEN;");
  };
  const attributes = "HttpOnly; SameSite=Strict";
  const age = "Path=/; Max-Age=43200";
  const plain = `gateway_session=TOKEN; ${age};`;
  expect(await from("localhost:3000", undefined, "http")).toBe(`${plain} ${attributes}`);
  // A proxy that ends TLS and says nothing of it.
  expect(await from("localhost:3000")).toBe(`${plain} Secure; ${attributes}`);
  const secure = `__Host-gateway_session=TOKEN; ${age}; Secure; ${attributes}`;
  expect(await from("gateway.example")).toBe(secure);
  expect(await from("127.0.0.1:3000", "https")).toBe(secure);
});

test("where two cookies claim to be the session neither is: another server of the host may have set one", async () => {
  const other = await signIn(gateway, gateway.managementKey);
  for (const cookie of [
    `${other.cookie}; ${browser.cookie}`,
    `${browser.cookie}; ${other.cookie}`,
    `${browser.cookie}; gateway_session=`,
  ]) {
    await expectError(
      await browser.call("GET", "v1/keys", undefined, { cookie }),
      401,
      "no_session",
    );
  }
  const cookie = `theme=dark; ${browser.cookie}; other_gateway_session=1`;
  expect((await browser.call("GET", "v1/keys", undefined, { cookie })).status).toBe(200);
});

test("signing in begins a session of its own, whatever cookie was there before", async () => {
  for (const before of [`gateway_session=${MADE_UP}`, browser.cookie]) {
    const key = { key: gateway.managementKey };
    const begun = await askDashboard(gateway, "POST", "session", key, { cookie: before });
    const cookie = begun.headers.get("set-cookie")!.split(";")[0]!;
    expect(cookie).not.toBe(before);
    const state = (await begun.json()) as { csrf_token: string };
    expect(state.csrf_token).not.toBe(csrfTokenOf(before.split("=")[1]!));
  }
  const cookie = `gateway_session=${MADE_UP}`;
  await expectError(
    await askDashboard(gateway, "GET", "session", undefined, { cookie }),
    401,
    "no_session",
  );
});

test("nothing of a session is kept by a cache, refusals neither", async () => {
  for (const [path, headers, status] of [
    ["v1/keys", {}, 200],
    ["overview", {}, 200],
    ["session", {}, 200],
    ["v1/keys/key_none", {}, 404],
    ["v1/keys?limit=none", {}, 400],
    ["v1/admin/organizations", {}, 403],
    ["v1/keys", { "x-csrf-token": "" }, 403],
    ["v1/keys", { "sec-fetch-site": "cross-site" }, 403],
    ["v1/keys", { cookie: "" }, 401],
  ] as const) {
    const response = await browser.call("GET", path, undefined, headers);
    expect([path, response.status, response.headers.get("cache-control")]).toEqual([
      path,
      status,
      "no-store",
    ]);
  }
});

test("no path below the gateway's address leads to another one", async () => {
  for (const path of [
    "//evil.example/dashboard/",
    "/dashboard//evil.example/",
    "/dashboard/%2f%2fevil.example/",
    "/dashboard/?next=//evil.example",
    "//evil.example/..",
    "/%5cevil.example/dashboard/",
  ]) {
    const { host } = new URL(gateway.baseUrl);
    const { headers } = await sendRaw(gateway, {
      ...{ method: "GET", path, host, headers: [["accept", "text/html"]] },
    });
    const location = headers.get("location");
    if (location === null) continue;
    expect(new URL(location, gateway.baseUrl + path).host).toBe(host);
  }
});

test("a session follows twelve pages at a time, and keeps no other one from following", async () => {
  const many = await signIn(gateway, gateway.managementKey);
  const streams: Response[] = [];
  for (let i = 0; i < 12; i++) streams.push(await many.call("GET", "events"));
  expect(streams.map(({ status }) => status)).toEqual(Array(12).fill(200));
  const refused = await many.call("GET", "events");
  expect(refused.headers.get("retry-after")).toBe("5");
  await expectError(refused, 503, "overloaded");
  const other = await browser.call("GET", "events");
  expect(other.status).toBe(200);
  await streams.pop()!.body!.cancel();
  await until("there is room for another one", async () => {
    const stream = await many.call("GET", "events");
    if (stream.status === 200) streams.push(stream);
    return stream.status === 200;
  });
  for (const { body } of [...streams, other]) await body!.cancel();
});

describe("behind a proxy that terminates TLS, for pages of any origin", () => {
  let behind: TestGateway;
  beforeAll(async () => {
    behind = await startTestGateway({
      environment: {
        GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8,::1/128",
        GATEWAY_PUBLIC_URL: "https://gateway.example",
        GATEWAY_CORS_ORIGINS: "*",
      },
    });
  });
  afterAll(() => behind.stop());

  const attempt = (forwarded: string, headers: Record<string, string | undefined> = {}) =>
    askDashboard(
      behind,
      "POST",
      "session",
      { key: behind.managementKey },
      { "x-forwarded-for": forwarded, ...headers },
    );

  test("the cookie is secure although the proxy speaks plain http to this machine", async () => {
    const response = await attempt("198.51.100.9", { "x-forwarded-proto": undefined });
    expect(response.headers.get("set-cookie")).toMatch(
      /^__Host-gateway_session=[\w-]{43}; Path=\/; Max-Age=43200; Secure; HttpOnly; SameSite=Strict$/,
    );
  });

  test("the public address is the own origin, and others are elsewhere, also where models may be called from anywhere", async () => {
    const from = (origin: string) =>
      attempt("198.51.100.8", { "sec-fetch-site": undefined, origin });
    expect((await from("https://gateway.example")).status).toBe(200);
    for (const origin of ["https://evil.example", "http://gateway.example", "null"]) {
      const response = await from(origin);
      expect(response.headers.get("access-control-allow-credentials")).toBeNull();
      await expectError(response, 403, "cross_origin");
    }
    const preflight = await fetch(`${behind.baseUrl}/dashboard/api/v1/keys`, {
      method: "OPTIONS",
      headers: { origin: "https://evil.example", "access-control-request-method": "POST" },
    });
    expect(preflight.headers.get("access-control-allow-credentials")).toBeNull();
  });

  test("who attempts too often keeps no one else out", async () => {
    for (let i = 0; i < 10; i++) {
      expect((await attempt(`192.0.2.${i}, 198.51.100.1`)).status).toBe(200);
    }
    await expectError(await attempt("198.51.100.1"), 429, "rate_limit_exceeded");
    expect((await attempt("198.51.100.2")).status).toBe(200);
  });
});
