import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ApiKeySettings, SCOPES } from "../../src/lib/api-key-record.ts";
import { addKeyOf, addSecretKey } from "../support/api-keys.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { AUTHORITY } from "./authority.ts";

let gateway: TestGateway;
let routes: string[];
const keys: Record<string, string> = {};
interface ScopedKeys {
  readonly with: string;
  readonly without: string;
  readonly limited: readonly string[];
  readonly management: string;
  readonly managementWithout: string;
}

const scopedKeys = new Map<string, ScopedKeys>();

const LIMITS: readonly Partial<ApiKeySettings>[] = [
  { rateLimitRpm: 1_000_000 },
  { dailyBudgetNano: 1_000_000_000n },
  { monthlyBudgetNano: 1_000_000_000n },
  { allowedModels: ["sandbox/chat"] },
  { expiresAtMs: Date.now() + 3_600_000 },
];

beforeAll(async () => {
  gateway = await startTestGateway();
  const document = (await (await fetch(`${gateway.baseUrl}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, unknown>>;
  };
  routes = Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
  );
  keys.management = gateway.managementKey;
  keys.limited = await addSecretKey(gateway, { rateLimitRpm: 1_000_000 });
  keys.secret = gateway.secretKey;
  keys.operator = await addOperator(gateway);
  for (const scope of SCOPES) {
    const others = SCOPES.filter((one) => one !== scope);
    scopedKeys.set(scope, {
      with: await addSecretKey(gateway, { scopes: [scope] }),
      without: await addSecretKey(gateway, { scopes: others }),
      management: await addKeyOf("management", gateway, { scopes: [scope] }),
      managementWithout: await addKeyOf("management", gateway, { scopes: others }),
      limited: await Promise.all(
        LIMITS.map((limit) => addSecretKey(gateway, { scopes: [scope], ...limit })),
      ),
    });
  }
});
afterAll(() => gateway.stop());

const AUTHORITY_CODES = [
  "missing_api_key",
  "invalid_api_key",
  "missing_scope",
  "wrong_key_kind",
  "key_not_permitted",
];

/** The code with which a call is refused for lack of authority; undefined where it goes on to what follows. */
async function refusal(route: string, key: string | undefined): Promise<string | undefined> {
  const [method, path] = route.split(" ") as [string, string];
  const response = await fetch(gateway.baseUrl + path.replaceAll(/\{\w+\}/g, "none_1"), {
    method,
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    redirect: "manual",
  });
  const text = await response.text();
  if (response.status !== 401 && response.status !== 403) return undefined;
  const { error } = JSON.parse(text) as { error: { code: string } };
  return AUTHORITY_CODES.includes(error.code) ? error.code : undefined;
}

test("every mounted route states its authority here, and nothing else is stated", () => {
  expect(routes.toSorted()).toEqual(Object.keys(AUTHORITY).toSorted());
});

test.each(Object.entries(AUTHORITY))("%s", async (route, authority) => {
  const seen: Record<string, string | undefined> = {};
  const wanted: Record<string, string | undefined> = {};
  const ask = async (name: string, key: string | undefined, code: string | undefined) => {
    wanted[name] = code;
    seen[name] = await refusal(route, key);
  };
  const isPublic = authority === "public";
  await ask("no key", undefined, isPublic ? undefined : "missing_api_key");
  await ask(
    "no such key",
    `gateway_sk_${"a".repeat(38)}`,
    isPublic ? undefined : "invalid_api_key",
  );
  const isOperator = authority === "operator";
  await ask("operator", keys.operator, isPublic || isOperator ? undefined : "wrong_key_kind");
  const forManagement =
    isOperator || (typeof authority === "object" && "secret" in authority)
      ? "wrong_key_kind"
      : undefined;
  await ask("management", keys.management, forManagement);
  const isForManagement = typeof authority === "object" && "management" in authority;
  const forSecret = isOperator || isForManagement ? "wrong_key_kind" : undefined;
  const isUnlimited = typeof authority === "object" && "unlimited" in authority;
  const forLimited = forSecret ?? (isUnlimited ? "key_not_permitted" : undefined);
  await ask("secret, all scopes", keys.secret, forSecret);
  await ask("secret, all scopes, limited", keys.limited, forLimited);
  for (const scope of SCOPES) {
    const scoped = scopedKeys.get(scope)!;
    if (typeof authority === "string") {
      await ask(`secret, ${scope}`, scoped.with, forSecret);
      await ask(`management, ${scope}`, scoped.management, forManagement);
      continue;
    }
    const needed = Object.values(authority)[0];
    const code = scope === needed ? undefined : "missing_scope";
    await ask(`secret, ${scope}`, scoped.with, forSecret ?? code);
    await ask(`management, ${scope}`, scoped.management, forManagement ?? code);
    if (scope !== needed) continue;
    await ask(`secret, without ${scope}`, scoped.without, forSecret ?? "missing_scope");
    const forLess = forManagement ?? "missing_scope";
    await ask(`management, without ${scope}`, scoped.managementWithout, forLess);
    for (const [index, key] of scoped.limited.entries()) {
      await ask(`secret, limited in way ${index}`, key, forLimited);
    }
  }
  expect(seen).toEqual(wanted);
});
