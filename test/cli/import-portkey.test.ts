import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ConfigFile } from "../../src/platform/config/file-schema.ts";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { until } from "../support/until.ts";
import { type ImportGateway, startImportGateway } from "./import-gateway.ts";

const CONFIGS = readFileSync(join(import.meta.dir, "../fixtures/portkey/configs.json"), "utf8");
let house: StubProvider;
let reserve: StubProvider;
let target: ImportGateway;

beforeAll(async () => {
  house = startStubProvider();
  reserve = startStubProvider();
  target = await startImportGateway();
  Object.assign(target.environment, {
    HOUSE_KEY: "sk-house-12345678",
    HOUSE_URL: house.url,
    RESERVE_URL: reserve.url,
    AZURE_KEY: "azure-key-123456789",
    AWS_ACCESS_KEY_ID: "AKIA0123456789012345",
    AWS_SECRET_ACCESS_KEY: "aws-secret-12345678",
  });
});
afterAll(async () => {
  await target?.stop();
  house.stop();
  reserve.stop();
});

async function printed(text = CONFIGS): Promise<{ config: ConfigFile; report: string[] }> {
  const { exitCode, stdout, stderr } = await target.imported("portkey", text);
  expect(exitCode, stderr).toBe(0);
  return { config: JSON.parse(stdout), report: stderr.trim().split("\n") };
}

test("targets become providers, with a variable in place of the key of a virtual key", async () => {
  const { config, report } = await printed();
  const byId = Object.fromEntries(config.providers!.map(({ id, ...settings }) => [id, settings]));
  expect(byId).toEqual({
    "openai-compatible": {
      type: "openai-compatible",
      base_url: house.url,
      api_key_env: "HOUSE_KEY",
    },
    "openai-compatible-2": {
      type: "openai-compatible",
      base_url: house.url,
      api_key: "<key left out>",
    },
    ollama: { type: "ollama", base_url: reserve.url },
    azure: {
      type: "azure",
      base_url: "https://house.openai.azure.com",
      api_version: "2024-10-21",
      deployments: { "gpt-4o": "prod-4o" },
      api_key_env: "AZURE_KEY",
    },
    "anthropic-prod-9d8c": { type: "anthropic", api_key_env: "ANTHROPIC_PROD_9D8C_API_KEY" },
    bedrock: {
      type: "bedrock",
      aws: {
        region: "eu-central-1",
        access_key_id_env: "AWS_ACCESS_KEY_ID",
        secret_access_key_env: "AWS_SECRET_ACCESS_KEY",
      },
    },
    "groq-free-77": { type: "groq", api_key_env: "GROQ_FREE_77_API_KEY" },
    mistral: { type: "mistral", api_key: "<key left out>" },
  });
  expect(report).toContain(
    "note: anthropic-prod-9d8c: set ANTHROPIC_PROD_9D8C_API_KEY to its key, which only Portkey has",
  );
});

test("a config becomes an alias: weights share the load, and fallbacks follow without a share", async () => {
  const { config } = await printed();
  expect(config.aliases).toEqual([
    {
      id: "pc-writer-1f2e3d",
      models: [
        { id: "team/openai-compatible/writer-large", weight: 0.8 },
        { id: "team/openai-compatible-2/writer-small", weight: 0.2 },
        { id: "team/ollama/reserve", weight: 0 },
      ],
    },
    {
      id: "pc-clouds-4a5b6c",
      models: [
        { id: "team/azure/prod-4o", weight: 3 },
        { id: "team/anthropic-prod-9d8c/claude-sonnet-4-5", weight: 1 },
        { id: "team/bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0", weight: 0 },
      ],
    },
    { id: "By-plan", models: [{ id: "team/groq-free-77/llama-3.1-8b-instant" }] },
  ]);
  const models = Object.fromEntries(config.models!.map(({ id, endpoints }) => [id, endpoints]));
  expect(models["team/groq-free-77/llama-3.1-8b-instant"]).toEqual([
    { provider: "groq-free-77", model: "llama-3.1-8b-instant" },
  ]);
  expect(models["team/azure/prod-4o"]).toEqual([{ provider: "azure", model: "prod-4o" }]);
});

test("a single config gets the name of its file, and a fallback without weights keeps its order", async () => {
  const targets = ["a", "b"].map((model) => ({
    provider: "ollama",
    custom_host: house.url,
    override_params: { model },
  }));
  const { config } = await printed(JSON.stringify({ strategy: { mode: "fallback" }, targets }));
  expect(config.aliases).toEqual([
    {
      id: expect.stringMatching(/^\d+$/) as never,
      models: [{ id: "team/ollama/a" }, { id: "team/ollama/b" }],
    },
  ]);
});

test("the report names what was left out with the reason, and no key is printed", async () => {
  const { config, report } = await printed();
  for (const line of [
    "took: provider openai-compatible",
    "took: alias pc-writer-1f2e3d of team/openai-compatible/writer-large, ",
    "left out: retry: the gateway retries by itself",
    "left out: cache: callers switch the response cache on by X-Gateway-Cache",
    "left out: strategy.on_status_codes: the gateway decides by the kind of failure",
    "left out: override_params.temperature: make a preset",
    "left out: By plan: conditions have no counterpart; choose the model in the client; the alias",
    "left out: pc-single-0d0d0d: it names no model; requests name it as mistral/model instead",
    "left out: pc-machine-0e0e0e: the provider sagemaker has no type here",
    "left out: key of provider mistral: keys are not printed",
    "note: By plan: call it By-plan",
  ]) {
    expect(
      report.some((one) => one.startsWith(line)),
      line,
    ).toBe(true);
  }
  expect(JSON.stringify(config) + report.join("\n")).not.toContain("sk-literal");
});

test("with --apply, a chat with the config's slug reaches the first targets, then the fallback", async () => {
  // The stub has OpenAI's interface.
  const [writer] = JSON.parse(CONFIGS.replace('"ollama"', '"openai"')) as unknown[];
  const { exitCode, stdout, stderr } = await target.imported(
    "portkey",
    JSON.stringify({ success: true, data: writer }),
    "--apply",
  );
  expect(exitCode, stderr).toBe(0);
  expect(stdout + stderr).not.toMatch(/sk-literal|sk-house/);
  const [alias] = await until("the alias is in force", async () => {
    const aliases = await target.stored("aliases");
    return aliases.length > 0 && aliases;
  });
  expect(alias).toMatchObject({
    id: "pc-writer-1f2e3d",
    models: [{ weight: 0.8 }, { weight: 0.2 }, {}],
  });
  for (const model of ["openai-compatible/writer-large", "openai-compatible-3/reserve"]) {
    await until(
      `${model} is used`,
      async () => (await target.chat(`team/${model}`)).status === 200,
    );
  }
  house.status = 500;
  const fallback = await target.chat("pc-writer-1f2e3d");
  expect(fallback.status, await fallback.text()).toBe(200);
  expect(reserve.requests.at(-1)!.body.model).toBe("reserve");
  house.status = 200;
});

test("a virtual key whose variable is not set stores nothing", async () => {
  const before = await target.entries();
  const { exitCode, stderr } = await target.imported("portkey", CONFIGS, "--apply");
  expect([exitCode, /_API_KEY is not set/.test(stderr)]).toEqual([1, true]);
  expect(await target.entries()).toEqual(before);
});

test.each([
  ["{", "is not JSON"],
  ["{}", "has no config"],
  ["[{}, {}]", "has no config at [0]"],
])("%s is rejected in one line that names %s", async (text, named) => {
  const { exitCode, stdout, stderr } = await target.imported("portkey", text);
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
  expect(stderr).toMatch(/^[^\n]+\n$/);
  expect(stderr).toContain(named);
});
