import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ConfigFile } from "../../src/platform/config/file-schema.ts";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { until } from "../support/until.ts";
import { type ImportGateway, startImportGateway } from "./import-gateway.ts";

const CONFIG = readFileSync(join(import.meta.dir, "../fixtures/bifrost/config.json"), "utf8");
let house: StubProvider;
let backup: StubProvider;
let target: ImportGateway;

beforeAll(async () => {
  house = startStubProvider();
  backup = startStubProvider();
  target = await startImportGateway();
  Object.assign(target.environment, {
    OPENAI_API_KEY: "sk-openai-main-12345",
    OPENAI_SPARE_KEY: "sk-openai-spare-12345",
    GEMINI_API_KEY: "gemini-key-12345678",
    AZURE_EU_KEY: "azure-key-123456789",
    AZURE_EU_URL: "https://house.openai.azure.com",
    AWS_ACCESS_KEY_ID: "AKIA0123456789012345",
    AWS_SECRET_ACCESS_KEY: "aws-secret-12345678",
    HOUSE_LARGE_KEY: "sk-house-large-12345",
    HOUSE_ROOT: house.url.replace("/v1", ""),
    BACKUP_ROOT: backup.url.replace("/v1", ""),
  });
});
afterAll(async () => {
  await target?.stop();
  house.stop();
  backup.stop();
});

async function printed(): Promise<{ config: ConfigFile; report: string[] }> {
  const { exitCode, stdout, stderr } = await target.imported("bifrost", CONFIG);
  expect(exitCode, stderr).toBe(0);
  return { config: JSON.parse(stdout), report: stderr.trim().split("\n") };
}

test("keys with equal settings share a provider by their weights, and others get one each", async () => {
  const { config } = await printed();
  const byId = Object.fromEntries(config.providers!.map(({ id, ...settings }) => [id, settings]));
  const root = target.environment.HOUSE_ROOT;
  expect(byId).toEqual({
    openai: {
      type: "openai",
      api_keys: [
        { key_env: "OPENAI_API_KEY", weight: 0.7 },
        { key_env: "OPENAI_SPARE_KEY", weight: 0.3 },
      ],
      max_parallel_requests: 40,
    },
    gemini: { type: "google", api_key_env: "GEMINI_API_KEY" },
    azure: {
      type: "azure",
      base_url: "https://house.openai.azure.com",
      api_version: "2024-10-21",
      api_key_env: "AZURE_EU_KEY",
    },
    bedrock: {
      type: "bedrock",
      aws: {
        region: "eu-central-1",
        access_key_id_env: "AWS_ACCESS_KEY_ID",
        secret_access_key_env: "AWS_SECRET_ACCESS_KEY",
      },
    },
    house: {
      type: "openai-compatible",
      base_url: `${root}/v1`,
      api_key_env: "HOUSE_LARGE_KEY",
    },
    "house-2": {
      type: "openai-compatible",
      base_url: `${root}/v1`,
      api_key: "<key left out>",
    },
    backup: { type: "vllm", base_url: backup.url },
  });
});

test("models have an endpoint for each key that serves them, and rules become aliases", async () => {
  const { config } = await printed();
  const endpoints = Object.fromEntries(config.models!.map(({ id, endpoints: all }) => [id, all]));
  expect(endpoints).toEqual({
    "azure/gpt-4o": [{ provider: "azure", model: "prod-4o-eu" }],
    "house/writer-large": [{ provider: "house", model: "writer-large" }],
    "house/writer-small": [
      { provider: "house", model: "writer-small", weight: 2 },
      { provider: "house-2", model: "writer-small", weight: 1 },
    ],
    "backup/reserve": [{ provider: "backup", model: "reserve" }],
  });
  const models = [
    { id: "house/writer-large", weight: 0.75 },
    { id: "house/writer-small", weight: 0.25 },
    { id: "backup/reserve", weight: 0 },
  ];
  expect(config.aliases).toEqual([
    { id: "writer", models },
    { id: "writer-latest", models },
  ]);
});

test("the report names what was left out with the reason, and no key is printed", async () => {
  const { config, report } = await printed();
  for (const line of [
    "took: provider house-2 (openai-compatible)",
    "took: model house/writer-small at house, house-2",
    "took: alias writer of house/writer-large, house/writer-small, backup/reserve",
    "left out: providers.replicate: the provider replicate has no type here",
    "left out: providers.house.keys[2]: the key is not enabled",
    "left out: providers.house.keys[3]: its list of models is empty",
    "left out: providers.backup.keys[0].value: values of a vault have no counterpart",
    "left out: network_config.extra_headers: has no counterpart",
    "left out: network_config.max_retries: the gateway retries by itself",
    "left out: governance.routing_rules[0] (writer): no imported provider serves replicate/meta/llama-3",
    "left out: governance.routing_rules[1] (cheap when budget is short): only global rules",
    "left out: governance.virtual_keys: make keys by POST /v1/keys",
    "left out: encryption_key: set GATEWAY_MASTER_KEY",
    "left out: key of provider house-2: keys are not printed",
  ]) {
    expect(
      report.filter((one) => one.startsWith(line)),
      line,
    ).toHaveLength(1);
  }
  expect(JSON.stringify(config) + report.join("\n")).not.toContain("sk-literal");
});

test("with --apply, chats by Bifrost's names reach the provider with its key, and fall back", async () => {
  const { exitCode, stdout, stderr } = await target.imported("bifrost", CONFIG, "--apply");
  expect(exitCode, stderr).toBe(0);
  expect(stdout + stderr).not.toMatch(/sk-literal|sk-house|azure-key/);
  await until(
    "the provider is used",
    async () => (await target.chat("house/writer-large")).status === 200,
  );
  expect(house.requests.at(-1)).toMatchObject({
    authorization: "Bearer sk-house-large-12345",
    body: { model: "writer-large" },
  });
  const small = await target.chat("house/writer-small");
  expect(small.status).toBe(200);
  expect(house.requests.at(-1)!.body.model).toBe("writer-small");
  await until(
    "the backup is used",
    async () => (await target.chat("backup/reserve")).status === 200,
  );
  house.status = 500;
  const fallback = await target.chat("writer");
  expect(fallback.status, await fallback.text()).toBe(200);
  expect(backup.requests.at(-1)!.body.model).toBe("reserve");
  house.status = 200;
});

test.each([
  ["{", "is not JSON"],
  ["{}", "no object providers"],
  [JSON.stringify({ providers: { vllm: { network_config: { base_url: "env.NONE" } } } }), "NONE"],
])("%s is rejected in one line that names %s", async (text, named) => {
  const { exitCode, stdout, stderr } = await target.imported("bifrost", text);
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
  expect(stderr).toMatch(/^[^\n]+\n$/);
  expect(stderr).toContain(named);
});
