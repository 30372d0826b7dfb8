import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConfigFile } from "../../src/platform/config/file-schema.ts";
import { cliJson, runCliHere } from "./cli-runs.ts";

const CONFIG = join(import.meta.dir, "..", "fixtures", "litellm", "config.yaml");
const AZURE = { AZURE_API_BASE: "https://house.openai.azure.com" };
const KEYS = {
  OPENAI_API_KEY: "a",
  ANTHROPIC_API_KEY: "b",
  AZURE_API_KEY: "c",
  GEMINI_API_KEY: "d",
  MISTRAL_API_KEY: "e",
  AWS_ACCESS_KEY_ID: "AKIA0123456789012345",
  AWS_SECRET_ACCESS_KEY: "f",
};

const folder = mkdtempSync(join(tmpdir(), "gateway-import-"));
afterAll(() => rmSync(folder, { recursive: true }));

function fileOf(text: string): string {
  const path = join(folder, `${Bun.hash(text)}`);
  writeFileSync(path, text);
  return path;
}

async function imported(...args: string[]): Promise<ConfigFile> {
  const { exitCode, stdout, stderr } = await runCliHere(AZURE, "import", "litellm", ...args);
  if (exitCode !== 0) throw new Error(stderr);
  return JSON.parse(stdout);
}

const modelOf = ({ models = [] }: ConfigFile, id: string) => models.find((one) => one.id === id);

test("the gateway offers every group of an imported file, with the group's prices and limits", async () => {
  const path = join(folder, "groups.json");
  await runCliHere(AZURE, "import", "litellm", CONFIG, "--output", path);
  const { data } = await cliJson<{ data: { id: string }[] }>(
    { ...KEYS, GATEWAY_CONFIG: path, DATA_DIR: folder },
    ...["models", "list"],
  );
  const ids = data.map(({ id }) => id);
  const groups = ["claude", "embeddings", "gemini", "gpt-4o", "house-writer", "legacy"];
  expect(ids.filter((id) => id.startsWith("team/")).sort()).toEqual(
    groups.map((group) => `team/${group}`),
  );
  // The wildcard brings the provider's models.
  expect(ids).toContain("mistral/mistral-medium-latest");
  expect(data.find(({ id }) => id === "team/house-writer")).toMatchObject({
    context_length: 32_768,
    input_cost_per_token: 2e-7,
    output_cost_per_token: 8e-7,
  });
  expect(data.find(({ id }) => id === "team/embeddings")).toMatchObject({ category: "embedding" });
});

test("clients keep the names of groups and aliases", async () => {
  const config = await imported(CONFIG);
  const aliases = Object.fromEntries(
    config.models!.flatMap(({ id, alias_of }) => (alias_of === undefined ? [] : [[id, alias_of]])),
  );
  expect(aliases).toEqual({
    "gpt-4o": "team/gpt-4o",
    "gpt-4": "team/gpt-4o",
    claude: "team/claude",
    gemini: "team/gemini",
    embeddings: "team/embeddings",
    "house-writer": "team/house-writer",
    legacy: "team/legacy",
  });
});

test("deployments of a group share the load by rpm, orders follow one another, and fallbacks come last", async () => {
  const config = await imported(CONFIG, "--author", "acme");
  expect(modelOf(config, "acme/gpt-4o")!.endpoints).toEqual([
    { provider: "azure", model: "prod-4o-eu", weight: 900 },
    { provider: "openai", model: "gpt-4o", weight: 100 },
  ]);
  const bedrock = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
  const claude = [
    { provider: "anthropic", model: "claude-sonnet-4-5" },
    { provider: "bedrock", model: bedrock },
  ];
  expect(modelOf(config, "acme/claude")!.endpoints).toEqual(claude);
  expect(modelOf(config, "acme/gemini")!.endpoints).toEqual([
    { provider: "google", model: "gemini-2.5-flash" },
    ...claude,
  ]);
});

test("keys stay variables, addresses get their version, and deployments with equal settings share a provider", async () => {
  const { providers = [] } = await imported(CONFIG);
  const byId = Object.fromEntries(providers.map(({ id, ...settings }) => [id, settings]));
  expect(providers.filter(({ type }) => type === "openai")).toHaveLength(1);
  expect(byId.azure).toEqual({
    type: "azure",
    base_url: AZURE.AZURE_API_BASE,
    api_version: "2024-10-21",
    api_key_env: "AZURE_API_KEY",
    deployments: { "gpt-4o": "prod-4o-eu" },
  });
  expect(byId.bedrock).toEqual({
    type: "bedrock",
    aws: {
      region: "eu-central-1",
      access_key_id_env: "AWS_ACCESS_KEY_ID",
      secret_access_key_env: "AWS_SECRET_ACCESS_KEY",
    },
  });
  expect(byId.vllm).toEqual({ type: "vllm", base_url: "http://10.0.0.7:8000/v1" });
  expect(byId["openai-compatible"]).toEqual({
    type: "openai-compatible",
    base_url: "https://llm.example.com/v1",
    api_key: "<key left out>",
  });
});

test("each entry that was taken and each setting that was left out is named, and no key is printed", async () => {
  const { stdout, stderr } = await runCliHere(AZURE, "import", "litellm", CONFIG);
  const report = stderr.trim().split("\n");
  for (const line of [
    "took: provider azure",
    "took: model team/gpt-4o at azure, openai",
    "took: alias gpt-4 of team/gpt-4o",
    "left out: litellm_params.timeout: set GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS",
    "left out: litellm_settings.drop_params: ",
    "left out: router_settings.redis_host: set REDIS_URL",
    "left out: general_settings.database_url: set DATABASE_URL",
    "left out: model_list[9] (watson): the provider watsonx has no type here",
    "left out: key of provider openai-compatible: keys are not printed; use --output or --apply",
    "note: house writer: call it house-writer",
  ]) {
    expect(report.filter((one) => one.startsWith(line))).toHaveLength(1);
  }
  expect(stderr).not.toContain("complete this before a start");
  expect(stdout + stderr).not.toContain("sk-literal");
});

test("an output file has the configuration, is readable only by its owner, and replaces no file", async () => {
  const output = join(folder, "written.json");
  const run = () => runCliHere(AZURE, "import", "litellm", CONFIG, "--output", output);
  const { exitCode, stdout, stderr } = await run();
  expect(exitCode).toBe(0);
  const shown = await imported(CONFIG);
  expect(JSON.parse(readFileSync(output, "utf8"))).toEqual({
    ...shown,
    providers: shown.providers!.map((provider) =>
      provider.api_key === undefined ? provider : { ...provider, api_key: "sk-literal" },
    ),
  });
  expect(stdout).toContain("left out: router_settings.redis_host: set REDIS_URL\n");
  expect(statSync(output).mode & 0o777).toBe(0o600);
  expect(stdout + stderr).not.toContain("sk-literal");
  writeFileSync(output, "{}");
  expect(await run()).toMatchObject({ exitCode: 2 });
  expect(readFileSync(output, "utf8")).toBe("{}");
});

test("a file of more than 4 MiB is rejected before it is parsed", async () => {
  const path = fileOf("#".repeat(4 * 1024 * 1024 + 1));
  const { exitCode, stderr } = await runCliHere({}, "import", "litellm", path);
  expect(exitCode).toBe(2);
  expect(stderr).toContain("at most 4194304");
});

/** Returns YAML whose aliases stand for 10^8 values. */
const aliasBomb = () =>
  ["a0: &a0 [x]"]
    .concat(
      Array.from({ length: 8 }, (_, level) => {
        const inner = Array(10).fill(`*a${level}`).join(", ");
        return `a${level + 1}: &a${level + 1} [${inner}]`;
      }),
    )
    .join("\n");

test("aliases that multiply are rejected", async () => {
  const { exitCode, stderr } = await runCliHere({}, "import", "litellm", fileOf(aliasBomb()));
  expect(exitCode).toBe(2);
  expect(stderr).toContain("is not YAML");
});

test.each([
  ["a: [", "is not YAML"],
  ["general_settings: {}", "model_list"],
  ["model_list: [{ model_name: a }]", "model_list[0]"],
  [
    "model_list: [{ model_name: a, litellm_params: { model: openai/a, api_base: os.environ/NONE } }]",
    "NONE",
  ],
])("%s is rejected in one line that names %s", async (text, named) => {
  const { exitCode, stdout, stderr } = await runCliHere({}, "import", "litellm", fileOf(text));
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
  expect(stderr).toMatch(/^[^\n]+\n$/);
  expect(stderr).toContain(named);
});
