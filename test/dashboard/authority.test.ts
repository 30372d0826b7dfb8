import { afterAll, beforeAll, expect, test } from "bun:test";
import { AUTHORITY } from "../http/authority.ts";
import { addKeyOf } from "../support/api-keys.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

let gateway: TestGateway;
let management: DashboardBrowser;
let operator: DashboardBrowser;
let finance: DashboardBrowser;
const FINANCE_SCOPES = ["usage:read", "billing:read"];
beforeAll(async () => {
  gateway = await startTestGateway();
  management = await signIn(gateway, gateway.managementKey);
  operator = await signIn(gateway, await addOperator(gateway));
  const bound = await addKeyOf("management", gateway, { scopes: FINANCE_SCOPES });
  finance = await signIn(gateway, bound);
});
afterAll(() => gateway.stop());

/** What became of the call of a session, without a body: let in, or refused for which reason. */
async function reached(browser: DashboardBrowser, route: string): Promise<string> {
  const [method, path] = route.split(" ") as [string, string];
  const response = await browser.call(method, path.slice(1).replaceAll(/\{\w+\}/g, "none_1"));
  const text = await response.text();
  if (response.status < 400) return "let in";
  const { code } = (JSON.parse(text) as { error: { code: string } }).error;
  const refusals = ["route_not_found", "method_not_allowed", "wrong_key_kind", "missing_scope"];
  return refusals.includes(code) ? code : "let in";
}

/** By what the description says of who may call a route. */
const EXPECTED: readonly (readonly [says: RegExp, ofManagement: string, ofOperator: string])[] = [
  [/\bNeeds an operator key/, "wrong_key_kind", "let in"],
  [/\bNeeds a (?:management key|secret key or a management key)/, "let in", "wrong_key_kind"],
  // Model endpoints, files, and what needs no key are not there at all.
  [/\bNeeds (?:a secret key with|no API key)/, "not there", "not there"],
];

test("every route of the API is let in, refused or not there below /dashboard/api by whose session it is", async () => {
  const document = (await (await fetch(`${gateway.baseUrl}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, { description: string }>>;
  };
  const faults: string[] = [];
  const seen = new Set<string>();
  for (const [path, operations] of Object.entries(document.paths)) {
    for (const [method, { description }] of Object.entries(operations)) {
      const route = `${method.toUpperCase()} ${path}`;
      const [, ofManagement, ofOperator] = EXPECTED.find(([says]) => says.test(description))!;
      for (const [browser, expected] of [
        [management, ofManagement],
        [operator, ofOperator],
      ] as const) {
        const found = (await reached(browser, route)).replace(
          /^(?:route_not_found|method_not_allowed)$/,
          "not there",
        );
        seen.add(expected);
        if (found !== expected) faults.push(`${route}: ${found} in place of ${expected}`);
      }
    }
  }
  expect(faults).toEqual([]);
  expect([...seen].toSorted()).toEqual(["let in", "not there", "wrong_key_kind"]);
});

test("a session reaches what its key's stated scopes allow, of the API and of the dashboard's own routes", async () => {
  const allowed: string[] = [];
  for (const [route, authority] of Object.entries(AUTHORITY)) {
    if (typeof authority === "string" || "secret" in authority) continue;
    const [scope] = Object.values(authority);
    const found = await reached(finance, route);
    const expected = FINANCE_SCOPES.includes(scope!) ? "let in" : "missing_scope";
    expect([route, found]).toEqual([route, expected]);
    if (found === "let in") allowed.push(route);
  }
  expect(allowed).toContain("GET /v1/usage");
  expect(allowed).not.toContain("POST /v1/credits/topup");
  for (const [route, expected] of [
    ["GET /overview", "let in"],
    ["GET /settings/choices", "let in"],
    ["GET /settings/plans", "let in"],
    ["GET /settings/sign-ins", "missing_scope"],
    ["DELETE /settings/sign-ins/key_none", "missing_scope"],
  ] as const) {
    expect([route, await reached(finance, route)]).toEqual([route, expected]);
  }
});

test("every route below /dashboard/api refuses what another site sends", async () => {
  const mirrored = Object.entries(AUTHORITY).flatMap(([route, authority]) =>
    authority === "public" || (typeof authority === "object" && "secret" in authority)
      ? []
      : [route],
  );
  const own = [
    ...["GET /session", "POST /session", "DELETE /session", "GET /sign_in", "GET /events"],
    ...["GET /overview", "GET /settings/choices", "GET /settings/plans"],
    ...[
      "GET /objects/files",
      "POST /objects/files/file_1/download_url",
      "DELETE /objects/files/file_1",
    ],
    ...["POST /objects/batches/batch_1/cancel", "POST /objects/responses/resp_1/content"],
    ...["GET /settings/plan-price", "GET /settings/sign-ins", "DELETE /settings/sign-ins/key_1"],
  ];
  for (const route of [...mirrored, ...own]) {
    const [method, path] = route.split(" ") as [string, string];
    const body = route === "POST /session" ? { key: gateway.managementKey } : undefined;
    for (const site of ["cross-site", "same-site", "none"]) {
      const response = await management.call(
        method,
        path.slice(1).replaceAll(/\{\w+\}/g, "none_1"),
        body,
        { "sec-fetch-site": site },
      );
      const { error } = (await response.json()) as { error: { code: string } };
      expect([route, response.status, error.code]).toEqual([route, 403, "cross_origin"]);
    }
  }
});
