import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { addOperator } from "../support/operator-keys.ts";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { until } from "../support/until.ts";
import { runCliHere } from "./cli-runs.ts";

type Fields = Record<string, unknown>;

const folder = mkdtempSync(join(tmpdir(), "gateway-config-"));
const fileOfGateway = join(folder, "gateway.config.json");
let gateway: TestGateway;
let operator: string;
let stub: StubProvider;
let environment: Record<string, string>;

beforeAll(async () => {
  stub = startStubProvider();
  const configuration = {
    providers: [
      {
        id: "filed",
        type: "openai-compatible",
        base_url: stub.url,
        api_key: "sk-in-the-file-12345678",
      },
      {
        ...{ id: "two-keys", type: "openai-compatible", base_url: stub.url },
        api_keys: [{ key: "sk-in-the-file-12345678" }, { key_env: "SECOND_KEY", weight: 2 }],
      },
    ],
  };
  writeFileSync(fileOfGateway, JSON.stringify(configuration));
  gateway = await startTestGateway({
    configuration,
    environment: { SECOND_KEY: "sk-second-12345" },
  });
  operator = await addOperator(gateway);
  environment = {
    DATABASE_URL: gateway.databaseUrl,
    GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64"),
    GATEWAY_CONFIG: fileOfGateway,
    SECOND_KEY: "sk-second-12345",
    GROQ_API_KEY: "gsk-of-the-environment-1234",
    DATA_DIR: folder,
  };
  const entries = [
    [
      "providers",
      { id: "one", type: "openai-compatible", base_url: stub.url, api_key: "sk-stored-1234567890" },
    ],
    [
      "models",
      {
        id: "acme/one",
        context_length: 4096,
        input_cost_per_token: 1e-6,
        output_cost_per_token: 1e-6,
        endpoints: [{ provider: "one", model: "one" }],
      },
    ],
    ["aliases", { id: "fast", models: [{ id: "acme/one", weight: 1 }] }],
    ["prices", { id: "now", model: "acme/one", pricing: { input_cost_per_token: 2e-6 } }],
  ] as const;
  for (const [path, entry] of entries) {
    const response = await gateway.request("POST", `/v1/admin/${path}`, entry, { key: operator });
    expect(response.status, await response.text()).toBe(201);
  }
});
afterAll(async () => {
  await gateway?.stop();
  stub.stop();
  rmSync(folder, { recursive: true });
});

async function cli(...args: string[]) {
  const { exitCode, stdout, stderr } = await runCliHere(environment, "config", ...args);
  return { exitCode, stdout, stderr };
}

function written(config: Fields): string {
  const path = join(folder, `target-${Bun.hash(JSON.stringify(config))}.json`);
  writeFileSync(path, JSON.stringify(config));
  return path;
}

async function exported(): Promise<Record<string, Fields[]>> {
  const { exitCode, stdout, stderr } = await cli("export");
  expect(exitCode, stderr).toBe(0);
  return JSON.parse(stdout);
}

const names = async () => {
  const response = await gateway.request("GET", "/v1/admin/models", undefined, { key: operator });
  const { data } = (await response.json()) as { data: Fields[] };
  return data.filter(({ source }) => source === "stored").map(({ id }) => id);
};

test("an export has the entries of all sources and no secret in clear, and applying it changes nothing", async () => {
  const config = await exported();
  expect(config.providers!.map(({ id }) => id).sort()).toEqual([
    "filed",
    "groq",
    "one",
    "two-keys",
  ]);
  expect(config.providers!.find(({ id }) => id === "groq")).toEqual({
    id: "groq",
    type: "groq",
    api_key_env: "GROQ_API_KEY",
  });
  expect([config.models, config.aliases, config.prices].map((list) => list!.length)).toEqual([
    1, 1, 1,
  ]);
  const text = JSON.stringify(config);
  for (const secret of ["12345678", "1234567890", "gsk-of"]) expect(text).not.toContain(secret);
  const path = written(config);
  expect((await cli("diff", path)).stdout).toBe("No differences.\n");
  const before =
    await gateway.sql`SELECT kind, id, version FROM configuration_entries ORDER BY kind, id`;
  expect(await cli("apply", path)).toMatchObject({ exitCode: 0, stdout: "No differences.\n" });
  const after =
    await gateway.sql`SELECT kind, id, version FROM configuration_entries ORDER BY kind, id`;
  expect([...after]).toEqual([...before]);
});

test("apply adds, changes and deletes in one step, which a running gateway follows within a second", async () => {
  const config = await exported();
  const target = {
    ...config,
    models: [
      { ...config.models![0], output_cost_per_token: 3e-6 },
      { ...config.models![0], id: "acme/two" },
    ],
    prices: [],
  };
  const path = written(target);
  const expected =
    "change model acme/one: output_cost_per_token\nadd model acme/two\ndelete price now\n";
  expect(await cli("diff", path)).toMatchObject({ exitCode: 1, stdout: expected });
  expect((await cli("apply", path, "--dry-run")).stdout).toBe(`${expected}Nothing was changed.\n`);
  expect(await names()).toEqual(["acme/one"]);
  expect(await cli("apply", path)).toMatchObject({ exitCode: 0, stdout: expected });
  await until("the gateway has the new model", async () => (await names()).length === 2);
  const chat = await gateway.request("POST", "/v1/chat/completions", {
    model: "acme/two",
    messages: [{ role: "user", content: "Hi" }],
  });
  expect(chat.status).toBe(200);
  expect(stub.requests.at(-1)!.authorization).toBe("Bearer sk-stored-1234567890");
});

test("a model with alias_of is stored as an alias, and applying it again changes nothing", async () => {
  const config = await exported();
  const path = written({
    ...config,
    models: [...config.models!, { id: "old", alias_of: "acme/one" }],
  });
  expect((await cli("apply", path)).stdout).toBe("add alias old\n");
  expect((await exported()).aliases).toContainEqual({ id: "old", models: [{ id: "acme/one" }] });
  expect((await cli("apply", path)).stdout).toBe("No differences.\n");
  expect((await cli("apply", written(config))).stdout).toBe("delete alias old\n");
});

test("a file with one fault changes nothing", async () => {
  const config = await exported();
  const faulty = [
    {
      ...config,
      models: [
        ...config.models!,
        { id: "acme/three", endpoints: [{ provider: "nobody", model: "x" }] },
      ],
    },
    {
      ...config,
      aliases: [{ id: "fast", models: [{ id: "acme/absent" }] }, ...config.aliases!.slice(1)],
    },
    { ...config, providers: config.providers!.filter(({ id }) => id !== "one") },
    {
      ...config,
      providers: config.providers!.map((one) =>
        "sealed_secrets" in one ? { ...one, sealed_secrets: "AAAA" } : one,
      ),
    },
    {
      ...config,
      providers: [
        ...config.providers!,
        { id: "unset", type: "openai", api_key_env: "NOT_SET_ANYWHERE" },
      ],
    },
  ];
  const before =
    await gateway.sql`SELECT kind, id, version FROM configuration_entries ORDER BY kind, id`;
  for (const target of faulty) {
    const { exitCode, stderr } = await cli("apply", written({ ...target, added: undefined }));
    expect([exitCode, stderr.length > 0]).toEqual([1, true]);
  }
  const after =
    await gateway.sql`SELECT kind, id, version FROM configuration_entries ORDER BY kind, id`;
  expect([...after]).toEqual([...before]);
});
