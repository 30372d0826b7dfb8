import { afterAll, beforeAll, expect, test } from "bun:test";
import { parseApiKey } from "../../src/lib/api-key-format.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { cliJson, runCliHere } from "./cli-runs.ts";

let database: OpenTestDatabase;
let environment: Record<string, string>;
let organizationId: string;

beforeAll(async () => {
  database = await openTestDatabase(1);
  environment = { DATABASE_URL: database.url };
  const made = await cliJson<{ organization: { id: string } }>(
    environment,
    ...["org", "create", "--name", "Only one"],
  );
  organizationId = made.organization.id;
});
afterAll(() => database.drop());

const FUTURE = "2099-01-01T00:00:00.000Z";
// biome-ignore lint/suspicious/noExplicitAny: answers of many shapes
const cli = (...argv: string[]) => cliJson<any>(environment, ...argv);
const misuse = async (...argv: string[]) => {
  const { exitCode, stdout, stderr } = await runCliHere(environment, ...argv);
  expect({ argv, exitCode, stdout, lines: stderr.trim().split("\n").length }).toEqual({
    argv,
    exitCode: 2,
    stdout: "",
    lines: 1,
  });
};

test("keys create takes budgets, rate, models and expiry, of the only organization", async () => {
  expect(
    await cli(
      ...["keys", "create", "--name", "limited", "--scopes", "chat:completions"],
      ...[
        "--rate-limit-rpm",
        "60",
        "--rate-limit-tpm",
        "9000",
        "--daily-budget-usd",
        "0",
        "--monthly-budget-usd",
        "2.000000001",
        "--budget-includes-byok",
        "true",
      ],
      ...["--models", "sandbox/chat, openai/gpt-4o", "--expires-at", FUTURE],
    ),
  ).toMatchObject({
    name: "limited",
    scopes: ["chat:completions"],
    rate_limit_rpm: 60,
    rate_limit_tpm: 9_000,
    daily_budget_usd: 0,
    monthly_budget_usd: 2.000000001,
    budget_includes_byok: true,
    allowed_models: ["sandbox/chat", "openai/gpt-4o"],
    expires_at: FUTURE,
  });
  const listed = await cli("keys", "list");
  expect(listed.data[0]).toMatchObject({ name: "limited", kind: "secret" });
  expect(listed.total).toBe(3);
});

test("keys create makes no management key with a limit that applies to secret keys only", async () => {
  for (const [option, value] of [
    ["--rate-limit-rpm", "60"],
    ["--daily-budget-usd", "1"],
    ["--models", "sandbox/chat"],
  ] as const) {
    const command = ["keys", "create", "--name", "bound", "--kind", "management", option, value];
    const refused = await runCliHere(environment, ...command);
    expect(refused).toMatchObject({ exitCode: 2, stdout: "" });
    expect(refused.stderr).toContain("limits apply to secret keys only");
  }
});

test("keys create makes management and operator keys; keys list and revoke know operator keys", async () => {
  const management = await cli("keys", "create", "--name", "admin", "--kind", "management");
  expect(parseApiKey(management.key)).toEqual({ kind: "management" });
  const operator = await cli("keys", "create", "--name", "ops", "--kind", "operator");
  expect(parseApiKey(operator.key)).toEqual({ kind: "operator" });
  expect(operator).toEqual({
    id: expect.stringMatching(/^opk_/),
    name: "ops",
    kind: "operator",
    created_at: expect.any(String),
    key: expect.any(String),
  });
  const listed = await cli("keys", "list", "--kind", "operator");
  expect(listed).toMatchObject({ total: 1, data: [{ id: operator.id, name: "ops" }] });
  expect(JSON.stringify(listed)).not.toContain(operator.key.slice(0, 20));
  expect((await cli("keys", "list")).data.map((key: { id: string }) => key.id)).not.toContain(
    operator.id,
  );
  expect(await cli("keys", "revoke", operator.id)).toEqual({ id: operator.id, deleted: true });
  expect((await cli("keys", "list", "--kind", "operator")).total).toBe(0);
  const again = await runCliHere(environment, "keys", "revoke", operator.id);
  expect(again).toMatchObject({ exitCode: 1, stdout: "" });
  expect(again.stderr).toStartWith("key_not_found:");
});

test.each(["secret", "management", "operator"] as const)(
  "keys generate prints a well-formed %s key and writes nothing",
  async (kind) => {
    const { key } = await cliJson<{ key: string }>({}, "keys", "generate", "--kind", kind);
    expect(parseApiKey(key)).toEqual({ kind });
  },
);

test("org update sets plan, fee, quota, credit limit, limits and suspension, and gives them back", async () => {
  const update = (...options: string[]) => cli("org", "update", ...options);
  expect(
    await update(
      ...[
        "--name",
        "Renamed",
        "--plan",
        "pro",
        "--fee-percent",
        "1.5",
        "--file-quota-bytes",
        "1000",
      ],
      ...[
        "--credit-limit-usd",
        "5",
        "--max-keys",
        "7",
        "--max-webhooks",
        "0",
        "--suspended",
        "true",
      ],
    ),
  ).toMatchObject({
    id: organizationId,
    name: "Renamed",
    plan: "pro",
    fee_percent: 1.5,
    file_quota_bytes: 1000,
    credit_limit_usd: 5,
    max_keys: 7,
    max_webhooks: 0,
    suspended: true,
  });
  expect(
    await update(
      ...["--org", organizationId, "--fee-percent", "default", "--file-quota-bytes", "default"],
      ...["--credit-limit-usd", "none", "--max-keys", "default", "--max-webhooks", "default"],
      ...["--suspended", "false"],
    ),
  ).toMatchObject({
    plan: "pro",
    fee_percent: 2.5,
    credit_limit_usd: null,
    max_keys: 100_000,
    max_webhooks: 100,
    overrides: [],
    suspended: false,
  });
  expect(await update("--credit-limit-usd", "0")).toMatchObject({ credit_limit_usd: 0 });
  expect(await update("--plan", "enterprise")).toMatchObject({ credit_limit_usd: null });
});

test("a key beyond the organization's number of keys is refused", async () => {
  await cli("org", "update", "--max-keys", "1");
  const refused = await runCliHere(environment, "keys", "create", "--name", "one too many");
  expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
  expect(refused.stderr).toStartWith("quota_exceeded:");
  await cli("org", "update", "--max-keys", "default");
});

test("what cannot be meant is one line and exit code 2", async () => {
  const create = ["keys", "create", "--name", "x"];
  await misuse(...create, "--rate-limit-rpm", "0");
  await misuse(...create, "--rate-limit-rpm", "1.5");
  await misuse(...create, "--daily-budget-usd", "-1");
  await misuse(...create, "--daily-budget-usd", "0.0000000001");
  await misuse(...create, "--monthly-budget-usd", "much");
  await misuse(...create, "--budget-includes-byok", "yes");
  await misuse(...create, "--models", "a,a");
  await misuse(...create, "--models", "");
  await misuse(...create, "--expires-at", "2001-01-01");
  await misuse(...create, "--kind", "root");
  await misuse(...create, "--scopes", "*");
  await misuse(...create, "--kind", "operator", "--daily-budget-usd", "1");
  await misuse(...create, "--kind", "operator", "--org", organizationId);
  await misuse("keys", "list", "--kind", "operator", "--org", organizationId);
  await misuse("org", "update");
  await misuse("org", "update", "--plan", "gold");
  await misuse("org", "update", "--fee-percent", "100.01");
  await misuse("org", "update", "--fee-percent", "-1");
  await misuse("org", "update", "--suspended", "yes");
  await misuse("org", "update", "--max-keys", "-1");
  await misuse("org", "update", "--credit-limit-usd", "default");
});

test("with several organizations each command asks for --org, and credits adjust takes the only one", async () => {
  const adjust = ["credits", "adjust", "--amount-usd", "1", "--description", "x"];
  expect(await cli(...adjust)).toMatchObject({ amount_usd: 1 });
  await cli("org", "create", "--name", "A second one");
  await misuse(...adjust);
  await misuse("keys", "create", "--name", "x");
  await misuse("keys", "list");
  await misuse("org", "update", "--plan", "pro");
  const unknown = await runCliHere(
    environment,
    "org",
    "update",
    "--org",
    "org_none",
    "--plan",
    "pro",
  );
  expect(unknown.exitCode).toBe(1);
  expect(unknown.stderr).toStartWith("organization_not_found:");
});
