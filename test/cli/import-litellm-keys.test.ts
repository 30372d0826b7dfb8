import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { until } from "../support/until.ts";
import { type ImportGateway, startImportGateway } from "./import-gateway.ts";

type Fields = Record<string, unknown>;

const KEYS = join(import.meta.dir, "..", "fixtures", "litellm", "keys.json");
let stub: StubProvider;
let target: ImportGateway;
let config: string;

beforeAll(async () => {
  stub = startStubProvider();
  target = await startImportGateway();
  config = `model_list:
  - { model_name: house, litellm_params: { model: hosted_vllm/house, api_base: "${stub.url}" } }
  - { model_name: house writer, litellm_params: { model: hosted_vllm/writer, api_base: "${stub.url}" } }
  - { model_name: other, litellm_params: { model: hosted_vllm/other, api_base: "${stub.url}" } }
`;
});
afterAll(async () => {
  await target?.stop();
  stub.stop();
});

const imported = (...args: readonly string[]) => target.imported("litellm", config, ...args);

async function keys(): Promise<Fields[]> {
  const { gateway } = target;
  const response = await gateway.request("GET", "/v1/keys?limit=100", undefined, {
    key: gateway.managementKey,
  });
  return ((await response.json()) as { data: Fields[] }).data;
}

function fileOf(value: unknown): string {
  const path = join(target.folder, `${Bun.hash(JSON.stringify(value))}.json`);
  writeFileSync(path, JSON.stringify(value));
  return path;
}

test("keys are created only with --apply", async () => {
  const before = await keys();
  expect(await imported("--keys", KEYS)).toMatchObject({
    exitCode: 2,
    stderr: "--keys needs --apply\n",
  });
  expect(await keys()).toEqual(before);
  expect(await target.entries()).toEqual([]);
});

test.each([
  ["{}", "has no list keys"],
  ['{"keys": ["88dc28d0f030c55ed4ab77ed8faf098196cb1c05"]}', "only hashes"],
  ["{", "is not JSON"],
])("a file of keys with %s is rejected before anything is stored: %s", async (text, reason) => {
  const path = join(target.folder, `${Bun.hash(text)}.json`);
  writeFileSync(path, text);
  const { exitCode, stdout, stderr } = await imported("--apply", "--keys", path);
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
  expect(stderr).toContain(reason);
  expect(await target.entries()).toEqual([]);
});

test("each key gets its budget, limits and models, is shown once, and works", async () => {
  const { exitCode, stdout, stderr } = await imported("--apply", "--keys", KEYS, "--json");
  expect(exitCode, stderr).toBe(0);
  const report = JSON.parse(stdout) as {
    keys: { name: string; key: string }[];
    left_out: string[];
  };
  expect(report.keys.map(({ name }) => name)).toEqual(["search", "reports", "open"]);
  const byName = Object.fromEntries((await keys()).map((key) => [key.name, key]));
  expect(byName.search).toMatchObject({
    daily_budget_usd: 12.5,
    monthly_budget_usd: null,
    rate_limit_rpm: 600,
    rate_limit_tpm: 90_000,
    allowed_models: ["house", "house-writer"],
    expires_at: null,
  });
  expect(byName.reports).toMatchObject({
    daily_budget_usd: null,
    monthly_budget_usd: 400,
    allowed_models: null,
    expires_at: "2099-01-31T00:00:00.000Z",
  });
  expect(byName.open).toMatchObject({ monthly_budget_usd: null, allowed_models: null });
  const [search] = report.keys;
  const chat = (model: string) =>
    target.gateway.request(
      "POST",
      "/v1/chat/completions",
      { model, messages: [{ role: "user", content: "Hi" }] },
      { key: search!.key },
    );
  await until("the provider is used", async () => (await chat("house")).status === 200);
  expect((await chat("house-writer")).status).toBe(200);
  expect((await chat("other")).status).toBe(403);
});

test("a key that could do more here than there is left out, with the reason", async () => {
  const { stdout } = await imported("--apply", "--keys", KEYS);
  const lines = stdout.split("\n");
  for (const line of [
    "left out: keys: the file has 1 of 2 pages",
    "left out: key weekly: budgets here renew each day or month, not in 7d",
    "left out: key forever: budgets here renew each day or month, but its budget never does",
    "left out: key blocked: it is blocked",
    "left out: key past: it has expired",
    "left out: key team: its models include all-team-models",
    "left out: key each: its model_max_budget has no counterpart",
    "left out: keys[].metadata: has no counterpart",
    "left out: keys[].team_id: limits of teams are not imported",
  ]) {
    expect(
      lines.filter((one) => one.startsWith(line)),
      line,
    ).toHaveLength(1);
  }
  const names = (await keys()).map(({ name }) => name);
  for (const name of ["weekly", "forever", "blocked", "past", "team", "each"]) {
    expect(names).not.toContain(name);
  }
});

test("a second import creates no key again, and the text shows each new key once", async () => {
  const before = await keys();
  const again = await imported("--apply", "--keys", KEYS);
  expect(again.stdout).toContain("left out: key search: the organization already has a key");
  expect(again.stdout).not.toContain("gateway_sk_");
  expect(await keys()).toEqual(before);
  const next = fileOf([{ keys: [{ key_alias: "next", models: ["house"] }] }]);
  const { stdout } = await imported("--apply", "--keys", next);
  expect(stdout.match(/^key next: gateway_sk_\w+$/gm)).toHaveLength(1);
  expect(stdout).toContain("The keys are shown only once.\n");
});

test("an unknown organization gets no key, and nothing is stored", async () => {
  const before = await target.entries();
  const next = fileOf({ keys: [{ key_alias: "lost", models: [] }] });
  const { exitCode, stderr } = await target.imported(
    "litellm",
    config.replaceAll("house", "lost"),
    ...["--apply", "--keys", next, "--org", "org_unknown"],
  );
  expect([exitCode, stderr.startsWith("organization_not_found")]).toEqual([1, true]);
  expect(await target.entries()).toEqual(before);
});
