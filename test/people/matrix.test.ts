import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isOpenToDevelopers } from "../../src/http/limited-keys.ts";
import type { Scope } from "../../src/lib/api-key-record.ts";
import { OPERATOR_ROLES, type OperatorRole, ROLE_RIGHTS, ROLES } from "../../src/lib/roles.ts";
import { AUTHORITY } from "../http/authority.ts";
import {
  type IsolationGateway,
  type ObjectKind,
  startIsolationGateway,
} from "../http/isolation-objects.ts";
import { addOperator } from "../support/operator-keys.ts";
import {
  browserOf,
  joined,
  manage,
  type SignedInPerson,
  signInWith,
  uniqueEmail,
} from "./people.ts";

/*
 * Every administrative route, called in the session of a member with each role, of the organization of the objects and
 * of another one. Whether a role may call follows from ROLE_RIGHTS, and from the
 * routes that are open to developers.
 */

interface AdministrativeRoute {
  readonly route: string;
  readonly method: string;
  readonly path: string;
  readonly scope: Scope;
  readonly isForManagement: boolean;
}

/** The mounted routes equal AUTHORITY, as test/http/authority-matrix.test.ts proves. */
const ADMINISTRATIVE = Object.entries(AUTHORITY).flatMap(([route, authority]) => {
  if (typeof authority === "string" || "secret" in authority) return [];
  const [method, path] = route.split(" ") as [string, string];
  const [scope] = Object.values(authority) as [Scope];
  return { route, method, path, scope, isForManagement: "management" in authority };
});
const OF_OPERATORS = Object.entries(AUTHORITY).flatMap(([route, authority]) =>
  authority === "operator" ? [route] : [],
);

/** The kind of the object that the parameter after each path names. */
const OBJECTS: Readonly<Record<string, ObjectKind>> = {
  models: "model",
  keys: "key",
  budgets: "budget",
  teams: "team",
  members: "member",
  invitations: "invitation",
  payment_methods: "method",
  statements: "month",
  requests: "request",
  provider_keys: "providerKey",
  guardrails: "guardrail",
  presets: "preset",
  webhooks: "webhook",
  alert_channels: "alertChannel",
  deliveries: "delivery",
};

const BODIES: Readonly<Record<string, object>> = {
  "PATCH /v1/billing/payment_methods/{id}": { is_default: true },
  "POST /v1/webhooks/{id}/test": { type: "key.created" },
};

const none = (path: string) => path.replaceAll(/\{\w+\}/g, "none_1");

let gateway: IsolationGateway;
let here: Record<string, SignedInPerson>;
let elsewhere: Record<string, SignedInPerson>;
const operators = {} as Record<OperatorRole, SignedInPerson>;
beforeAll(async () => {
  gateway = await startIsolationGateway({
    GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8",
    GATEWAY_TEST_PAYMENTS: "true",
  });
  const membersOf = async (key: string) => {
    const people: Record<string, SignedInPerson> = {};
    for (const role of ROLES) people[role] = await joined(gateway, role, { key });
    return people;
  };
  here = await membersOf(gateway.managementKey);
  elsewhere = await membersOf(gateway.stranger.managementKey);
  const key = await addOperator(gateway);
  // The viewer comes first: a gateway without other operators takes one too.
  for (const role of [...OPERATOR_ROLES].reverse()) {
    const { email } = await joined(gateway, "viewer", { email: uniqueEmail() });
    await gateway.sql`UPDATE people SET email_verified_at = now() WHERE email = ${email}`;
    const given = await manage(gateway, "POST", "admin/operators", { email, role }, key);
    expect(given.status).toBe(201);
    operators[role] = await browserOf(gateway, await signInWith(gateway, email), email);
  }
}, 90_000);
afterAll(() => gateway.stop());

/** Returns the status and the code of a call. */
async function called(
  browser: SignedInPerson,
  method: string,
  path: string,
  body?: object,
): Promise<{ status: number; code: string | undefined }> {
  const response = await browser.call(method, path.slice(1), body);
  const text = await response.text();
  const { status } = response;
  if (status < 400) return { status, code: undefined };
  return { status, code: (JSON.parse(text) as { error: { code: string } }).error.code };
}

function mayCall(
  role: (typeof ROLES)[number],
  { method, scope, path }: AdministrativeRoute,
): boolean {
  // Paths of the description have braces, those of the router colons.
  const routed = path.replaceAll(/\{(\w+)\}/g, ":$1").replace("/v1/models/:id", "/v1/models/*");
  const { changes, reads, isSelfOnly } = ROLE_RIGHTS[role];
  if (isSelfOnly && !isOpenToDevelopers({ method: method as "GET", path: routed })) return false;
  return (method === "GET" ? reads : changes).includes(scope);
}

describe("of the organization", () => {
  test.each(ADMINISTRATIVE)("$route is for the roles with its right", async (one) => {
    for (const role of ROLES) {
      const { status, code } = await called(here[role]!, one.method, none(one.path));
      const isPermitted = status < 500 && status !== 401 && status !== 403;
      const found = isPermitted ? "may" : `${status} ${code}`;
      expect([role, found]).toEqual([role, mayCall(role, one) ? "may" : "403 role_not_permitted"]);
    }
  });
});

describe("of another organization", () => {
  const naming = ADMINISTRATIVE.filter(({ path }) => path.includes("{"));

  test.each(naming)("$route finds no object, whatever the role", async (one) => {
    const path = one.path.replaceAll(/(\w+)\/\{\w+\}/g, (_, name: string) => {
      const kind = OBJECTS[name];
      if (kind === undefined) throw new Error(`OBJECTS has no kind for ${name}`);
      return `${name}/${encodeURIComponent(gateway.objects[kind])}`;
    });
    for (const role of ROLES) {
      const body = BODIES[one.route] ?? (one.method === "PATCH" ? {} : undefined);
      const { status, code } = await called(elsewhere[role]!, one.method, path, body);
      const expected = mayCall(role, one) ? "404" : "403 role_not_permitted";
      expect([role, `${status} ${code}`]).toEqual([role, expect.stringContaining(expected)]);
    }
  });
});

describe("operators", () => {
  test.each(OF_OPERATORS)(
    "%s is for operators, and only reading for operator_viewer",
    async (route) => {
      const [method, path] = route.split(" ") as [string, string];
      for (const role of OPERATOR_ROLES) {
        const { status, code } = await called(operators[role], method, none(path));
        const isPermitted = status < 500 && status !== 401 && status !== 403;
        const may = role === "operator" || method === "GET";
        const found = isPermitted ? "may" : `${status} ${code}`;
        expect([role, found]).toEqual([role, may ? "may" : "403 role_not_permitted"]);
      }
      for (const role of ROLES) {
        const { status, code } = await called(here[role]!, method, none(path));
        expect([role, status, code]).toEqual([role, 403, "wrong_key_kind"]);
      }
    },
  );

  test.each(ADMINISTRATIVE)("have no organization for $route", async ({ method, path }) => {
    for (const role of OPERATOR_ROLES) {
      const { status, code } = await called(operators[role], method, none(path));
      expect([role, status, code]).toEqual([role, 403, "wrong_key_kind"]);
    }
  });
});
