import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type DashboardDependencies, dashboardRoutes } from "../../src/dashboard/routes.ts";
import { ROLE_RIGHTS } from "../../src/lib/roles.ts";
import { AUTHORITY } from "../http/authority.ts";
import { browserOf, type Json, joined, manage, signInWith, uniqueEmail } from "../people/people.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

let gateway: TestGateway;
let operatorKey: string;
beforeAll(async () => {
  gateway = await startTestGateway({
    environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" },
  });
  operatorKey = await addOperator(gateway);
});
afterAll(() => gateway.stop());

/** Returns the session of an operator who views the organization, and the one before it. */
async function viewing(
  operator: DashboardBrowser,
  organizationId = gateway.organizationId,
): Promise<DashboardBrowser & { readonly state: Json }> {
  const response = await operator.call("POST", "session/view", { organization_id: organizationId });
  return browserOf(gateway, response, "");
}

/** Returns a person with an operator's role and an account. */
async function operatorPerson(role: "operator" | "operator_viewer") {
  const { email } = await joined(gateway, "developer", { email: uniqueEmail() });
  await gateway.sql`UPDATE people SET email_verified_at = now() WHERE email = ${email}`;
  await manage(gateway, "POST", "admin/operators", { email, role }, operatorKey);
  return browserOf(gateway, await signInWith(gateway, email), email);
}

const acts = async (key: string, action: string) =>
  (await manage(gateway, "GET", `audit_log?action=${action}`, undefined, key)).body.data as Json[];

async function codeOf(response: Response): Promise<string> {
  const body = (await response.json()) as Json;
  return response.status < 400 ? "" : body.error.code;
}

/** Stands for all dependencies: routes use them only when they are called. */
const anything: DashboardDependencies = new Proxy((() => {}) as never, {
  get: () => anything,
  apply: () => anything,
});

/** The dashboard's own routes of sessions, such as that of the account. */
const OWN_ROUTES = dashboardRoutes([], anything)
  .filter(({ access }) => access.kind === "session")
  .map(({ method, path }) => `${method} ${path.replace("/dashboard/api/", "")}`);
const ENDS_OF_VIEWS = ["DELETE session", "DELETE session/view"];

describe("a view of an organization by an operator", () => {
  test("reads what a viewer of the organization reads, and no route of operators", async () => {
    const operator = await signIn(gateway, operatorKey);
    const view = await viewing(operator);
    expect(view.state).toMatchObject({
      kind: "organization",
      viewing: { id: gateway.organizationId, name: expect.stringMatching(/^Organization /) },
    });
    for (const [route, authority] of Object.entries(AUTHORITY)) {
      const [method, path] = route.split(" ") as [string, string];
      if (method !== "GET" || authority === "public") continue;
      const code = await codeOf(await view.call("GET", path.slice(1).replaceAll(/\{\w+\}/g, "x1")));
      if (authority === "operator") expect([route, code]).toEqual([route, "wrong_key_kind"]);
      if (typeof authority === "string" || "secret" in authority) continue;
      const [scope] = Object.values(authority);
      const isOpen = ROLE_RIGHTS.viewer.reads.includes(scope!);
      expect([route, code === "role_not_permitted"]).toEqual([route, !isOpen]);
    }
    expect((await view.call("GET", "v1/provider_keys")).status).toBe(403);
  });

  test.each(["key", "operator", "operator_viewer"] as const)(
    "of an operator with %s changes nothing, by any route",
    async (holder) => {
      const operator =
        holder === "key" ? await signIn(gateway, operatorKey) : await operatorPerson(holder);
      const view = await viewing(operator);
      const ofApi = Object.keys(AUTHORITY).map((route) => route.replace(" /", " "));
      const routes = [...new Set([...ofApi, ...OWN_ROUTES])].filter(
        (route) => !route.startsWith("GET ") && !ENDS_OF_VIEWS.includes(route),
      );
      expect(routes.length).toBeGreaterThan(60);
      expect(routes).toContain("POST session/switch");
      for (const route of routes) {
        const [method, path] = route.split(" ") as [string, string];
        const asked = path.replaceAll(/\{\w+\}|:\w+/g, "x1");
        const response = await view.call(method, asked, { name: "x" });
        const code = await codeOf(response);
        const isRefused = ["role_not_permitted", "route_not_found", "method_not_allowed"];
        const isPublic = AUTHORITY[`${method} /${path}`] === "public";
        if (!isPublic) expect([route, isRefused.includes(code)]).toEqual([route, true]);
      }
    },
    60_000,
  );

  test("is in the audit log of the organization, with begin and end, and shows no address", async () => {
    const started = (await acts(gateway.managementKey, "session.view_started")).length;
    const ended = (await acts(gateway.managementKey, "session.view_ended")).length;
    const view = await viewing(await signIn(gateway, operatorKey));
    const [entry, ...others] = await acts(gateway.managementKey, "session.view_started");
    expect(others).toHaveLength(started);
    expect(entry).toMatchObject({
      organization_id: gateway.organizationId,
      actor: { kind: "operator", name: "Operator", address: null, via: "dashboard" },
    });
    const left = await browserOf(gateway, await view.call("DELETE", "session/view"), "");
    expect(left.state).toMatchObject({ kind: "operator", viewing: null });
    expect(await acts(gateway.managementKey, "session.view_ended")).toHaveLength(ended + 1);
    const again = await viewing(left);
    expect((await again.call("DELETE", "session")).status).toBe(200);
    expect(await acts(gateway.managementKey, "session.view_ended")).toHaveLength(ended + 2);
  });

  test("replaces the token, so that pages of the state before call nothing", async () => {
    const operator = await signIn(gateway, operatorKey);
    const view = await viewing(operator);
    expect((await operator.call("GET", "v1/admin/organizations")).status).toBe(401);
    const left = await browserOf(gateway, await view.call("DELETE", "session/view"), "");
    expect((await view.call("GET", "v1/keys")).status).toBe(401);
    expect((await left.call("GET", "v1/keys")).status).toBe(403);
    expect((await left.call("GET", "v1/admin/organizations")).status).toBe(200);
  });

  test("begins once if a session begins two at the same time", async () => {
    const operator = await signIn(gateway, operatorKey);
    const asked = { organization_id: gateway.organizationId };
    const answers = await Promise.all(
      [1, 2, 3].map(() => operator.call("POST", "session/view", asked)),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 401, 401]);
  });

  test("ends with the operator's role", async () => {
    const operator = await operatorPerson("operator_viewer");
    const view = await viewing(operator);
    expect((await view.call("GET", "v1/keys")).status).toBe(200);
    await gateway.sql`UPDATE people SET operator_role = NULL WHERE email = ${operator.email}`;
    expect((await view.call("GET", "v1/keys")).status).toBe(401);
    expect((await view.call("DELETE", "session/view")).status).toBe(401);
  });

  test("is open while the organization is suspended", async () => {
    const { organization } = await gateway.addOrganization();
    const path = `admin/organizations/${organization.id}`;
    await manage(gateway, "PATCH", path, { suspended: true }, operatorKey);
    const view = await viewing(await signIn(gateway, operatorKey), organization.id);
    expect((await view.call("GET", "v1/organization")).status).toBe(200);
  });

  test("takes none of the organization's administrative calls", async () => {
    const { organization, managementKey: organizationKey } = await gateway.addOrganization();
    const view = await viewing(await signIn(gateway, operatorKey), organization.id);
    const statuses = new Set<number>();
    for (let round = 0; round < 13; round++) {
      const calls = Array.from({ length: 50 }, () => view.call("GET", "v1/organization"));
      for (const { status } of await Promise.all(calls)) statuses.add(status);
    }
    expect([...statuses].sort()).toEqual([200, 429]);
    const key = organizationKey;
    expect((await manage(gateway, "GET", "organization", undefined, key)).status).toBe(200);
  });

  test("is for operators alone, and of organizations that exist", async () => {
    const operator = await signIn(gateway, operatorKey);
    const missing = await operator.call("POST", "session/view", { organization_id: "org_none" });
    expect(missing.status).toBe(404);
    const owner = await signIn(gateway, gateway.managementKey);
    const { organization } = await gateway.addOrganization();
    const asked = { organization_id: organization.id };
    expect(await codeOf(await owner.call("POST", "session/view", asked))).toBe("wrong_key_kind");
    expect(await codeOf(await owner.call("DELETE", "session/view"))).toBe("wrong_key_kind");
    expect(await codeOf(await operator.call("DELETE", "session/view"))).toBe("wrong_key_kind");
  });
});
