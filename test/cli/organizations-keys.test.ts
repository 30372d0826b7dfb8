import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { hashApiKey, parseApiKey } from "../../src/lib/api-key-format.ts";
import { SCOPES } from "../../src/lib/api-key-record.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { cliJson, printed, runCliHere, runCliProcess } from "./cli-runs.ts";

interface CreatedOrganization {
  readonly organization: { readonly id: string; readonly name: string; readonly plan: string };
  readonly management_key: string;
  readonly secret_key: string;
}

interface CreatedKey {
  readonly id: string;
  readonly key: string;
  readonly scopes: readonly string[];
}

let database: OpenTestDatabase;
let sql: Database;
let environment: Record<string, string>;

beforeAll(async () => {
  database = await openTestDatabase(1);
  ({ sql } = database);
  environment = { DATABASE_URL: database.url };
});
afterAll(() => database.drop());

const createOrganization = (...options: string[]) =>
  cliJson<CreatedOrganization>(environment, "org", "create", ...options);
const createKey = (org: string, ...options: string[]) =>
  cliJson<CreatedKey>(environment, "keys", "create", "--org", org, ...options);

test("org create makes an organization with working keys and the configured credit and plan", async () => {
  const created = await cliJson<CreatedOrganization>(
    { ...environment, GATEWAY_PLAN: "pro", GATEWAY_STARTING_CREDIT_USD: "2.000000001" },
    ...["org", "create", "--name", "Größe & Söhne"],
  );
  const { organization } = created;
  expect(created).toEqual({
    organization: { id: expect.stringMatching(/^org_/), name: "Größe & Söhne", plan: "pro" },
    management_key: expect.any(String),
    secret_key: expect.any(String),
  });
  expect(parseApiKey(created.management_key)).toEqual({ kind: "management" });
  expect(parseApiKey(created.secret_key)).toEqual({ kind: "secret" });
  const keys = await sql`SELECT kind, key_hash FROM api_keys
    WHERE organization_id = ${organization.id} ORDER BY kind`;
  expect([...keys]).toEqual([
    { kind: "management", key_hash: hashApiKey(created.management_key) },
    { kind: "secret", key_hash: hashApiKey(created.secret_key) },
  ]);
  const posted = await sql`SELECT type, amount_nano, balance_after_nano FROM transactions
    WHERE organization_id = ${organization.id}`;
  expect([...posted]).toEqual([
    { type: "adjustment", amount_nano: 2_000_000_001n, balance_after_nano: 2_000_000_001n },
  ]);
});

test("org create takes a plan, and without credit posts no transaction", async () => {
  const { organization } = await cliJson<CreatedOrganization>(
    { ...environment, GATEWAY_STARTING_CREDIT_USD: "0" },
    ...["org", "create", "--name", "Own keys", "--plan", "byok"],
  );
  expect(organization.plan).toBe("byok");
  const posted = await sql`SELECT 1 FROM transactions WHERE organization_id = ${organization.id}`;
  expect(posted).toHaveLength(0);
});

test("org list shows every organization once, page by page, newest first", async () => {
  const { organization } = await createOrganization("--name", "The newest");
  const all = await cliJson<{ data: { id: string; balance_usd: number }[]; total: number }>(
    environment,
    ...["org", "list"],
  );
  expect(all.data[0]).toMatchObject({ ...organization, balance_usd: 10 });
  expect(all.data).toHaveLength(all.total);
  const pages: string[] = [];
  for (let offset = 0; offset < all.total; offset++) {
    const page = await cliJson<{ data: { id: string }[] }>(
      environment,
      ...["org", "list", "--limit", "1", "--offset", String(offset)],
    );
    pages.push(...page.data.map(({ id }) => id));
  }
  expect(pages).toEqual(all.data.map(({ id }) => id));
});

test("keys create prints the create shape, with all scopes unless told otherwise", async () => {
  const { organization } = await createOrganization("--name", "Keys");
  const created = await createKey(organization.id, "--name", "server");
  expect(created).toEqual({
    id: expect.stringMatching(/^key_/),
    key: expect.stringMatching(/^gateway_sk_[0-9A-Za-z]{38}$/),
    name: "server",
    scopes: [...SCOPES],
    rate_limit_rpm: null,
    rate_limit_tpm: null,
    daily_budget_usd: null,
    monthly_budget_usd: null,
    budget_includes_byok: false,
    allowed_models: null,
    expires_at: null,
    team_id: null,
    owner_id: null,
    is_active: true,
    created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
  } as never);
  const narrow = await createKey(
    organization.id,
    ...["--name", "narrow", "--kind", "management", "--scopes", "keys:manage, billing:read"],
  );
  expect(parseApiKey(narrow.key)).toEqual({ kind: "management" });
  expect([...narrow.scopes].sort()).toEqual(["billing:read", "keys:manage"]);
  const events = await sql`SELECT type, data FROM outbox
    WHERE organization_id = ${organization.id} ORDER BY id`;
  expect([...events]).toEqual(
    [created, narrow].map(({ id, key }) => ({
      type: "key.created",
      data: {
        key_id: id,
        key_name: key === created.key ? "server" : "narrow",
        key_prefix: expect.stringContaining("…"),
      },
    })),
  );
});

test("a taken name and an unknown organization are told, with exit code 1 and nothing written", async () => {
  const { organization } = await createOrganization("--name", "Names");
  await createKey(organization.id, "--name", "one");
  const keysBefore = await sql`SELECT count(*) FROM api_keys`;
  const taken = await runCliHere(
    environment,
    ...["keys", "create", "--org", organization.id, "--name", "one"],
  );
  expect(taken).toMatchObject({ exitCode: 1, stdout: "" });
  expect(taken.stderr).toMatch(/^name_taken: [^\n]+\n$/);
  const unknown = await runCliHere(
    environment,
    ...["keys", "create", "--org", "org_none", "--name", "one"],
  );
  expect(unknown).toMatchObject({ exitCode: 1, stdout: "" });
  expect(unknown.stderr).toMatch(/^organization_not_found: [^\n]+\n$/);
  expect([...(await sql`SELECT count(*) FROM api_keys`)]).toEqual([...keysBefore]);
});

test("keys list shows keys without their secrets", async () => {
  const created = await createOrganization("--name", "Listed");
  const { id } = created.organization;
  const secret = await createKey(id, "--name", "third");
  const run = await runCliHere(environment, "keys", "list", "--org", id, "--json");
  const { data, total } = printed<{ data: Record<string, unknown>[]; total: number }>(run);
  expect(total).toBe(3);
  expect(data[0]).toMatchObject({
    id: secret.id,
    kind: "secret",
    key_prefix: `${secret.key.slice(0, 15)}…`,
    usage_today_usd: 0,
    usage_month_usd: 0,
    is_active: true,
    last_used_at: null,
  });
  const table = await runCliHere(environment, "keys", "list", "--org", id, "--limit", "2");
  expect(table.stdout).toContain(secret.id);
  expect(table.stdout).toContain("2 of 3");
  for (const key of [secret.key, created.secret_key, created.management_key]) {
    expect(run.stdout + table.stdout).not.toContain(key.slice(0, 20));
  }
  const unknown = await runCliHere(environment, "keys", "list", "--org", "org_none");
  expect(unknown.exitCode).toBe(1);
  expect(unknown.stderr).toStartWith("organization_not_found: ");
});

test("keys revoke deletes the key once, and frees its name", async () => {
  const { organization } = await createOrganization("--name", "Revoked");
  const key = await createKey(organization.id, "--name", "short-lived");
  expect(await cliJson<object>(environment, "keys", "revoke", "--id", key.id)).toEqual({
    id: key.id,
    deleted: true,
  });
  for (const argv of [[key.id], ["--id", key.id], ["key_none"]]) {
    const again = await runCliHere(environment, "keys", "revoke", ...argv);
    expect(again).toMatchObject({ exitCode: 1, stdout: "" });
    expect(again.stderr).toMatch(/^key_not_found: [^\n]+\n$/);
  }
  const events = await sql`SELECT data FROM outbox
    WHERE organization_id = ${organization.id} AND type = 'key.deleted'`;
  expect([...events]).toEqual([{ data: { key_id: key.id, key_name: "short-lived" } }]);
  const successor = await createKey(organization.id, "--name", "short-lived");
  expect(await cliJson<object>(environment, "keys", "revoke", successor.id)).toMatchObject({
    deleted: true,
  });
});

test("people see a new key once, and names cannot command their terminal", async () => {
  const { organization } = await createOrganization("--name", "People");
  const created = await runCliProcess(
    environment,
    ...["keys", "create", "--org", organization.id, "--name", "for people"],
  );
  expect(created.exitCode).toBe(0);
  expect(created.stdout.match(/gateway_sk_[0-9A-Za-z]{38}/g)).toHaveLength(1);
  expect(created.stderr).toBe("");
  await sql`UPDATE api_keys SET name = ${"red\u001b[31m\nrow\u202e"} WHERE name = 'for people'`;
  const { stdout } = await runCliHere(environment, "keys", "list", "--org", organization.id);
  expect(stdout).toContain("red�[31m�row�");
  expect(stdout.trimEnd().split("\n")).toHaveLength(4);
});

test("an empty database is migrated by whichever command comes first", async () => {
  const name = `${new URL(database.url).pathname.slice(1)}_empty`;
  await sql`CREATE DATABASE ${sql(name)}`;
  const url = new URL(database.url);
  url.pathname = `/${name}`;
  const empty = { DATABASE_URL: url.href };
  try {
    const runs = await Promise.all([
      cliJson<CreatedOrganization>(empty, "org", "create", "--name", "A"),
      cliJson<CreatedOrganization>(empty, "org", "create", "--name", "B"),
      cliJson<{ applied: string[] }>(empty, "migrate"),
    ]);
    expect(runs).toHaveLength(3);
    expect(await cliJson<{ applied: string[] }>(empty, "migrate")).toEqual({ applied: [] });
    expect((await cliJson<{ total: number }>(empty, "org", "list")).total).toBe(2);
  } finally {
    await sql`DROP DATABASE ${sql(name)} WITH (FORCE)`;
  }
});

test("migrate tells which migrations it applied", async () => {
  const name = `${new URL(database.url).pathname.slice(1)}_fresh`;
  await sql`CREATE DATABASE ${sql(name)}`;
  const url = new URL(database.url);
  url.pathname = `/${name}`;
  try {
    const { applied } = await cliJson<{ applied: string[] }>({ DATABASE_URL: url.href }, "migrate");
    expect(applied[0]).toBe("0000_baseline");
    expect(applied.at(-1)).toBe("functions");
    const again = await runCliHere({ DATABASE_URL: url.href }, "migrate");
    expect(again).toMatchObject({ exitCode: 0, stdout: "The schema was up to date.\n" });
  } finally {
    await sql`DROP DATABASE ${sql(name)} WITH (FORCE)`;
  }
});
