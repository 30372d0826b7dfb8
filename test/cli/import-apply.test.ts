import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { until } from "../support/until.ts";
import { type ImportGateway, startImportGateway } from "./import-gateway.ts";

let stub: StubProvider;
let target: ImportGateway;

beforeAll(async () => {
  stub = startStubProvider();
  target = await startImportGateway();
  Object.assign(target.environment, {
    HOUSE_URL: stub.url,
    HOUSE_KEY: "sk-of-a-variable-12345678",
  });
});
afterAll(async () => {
  await target?.stop();
  stub.stop();
});

const deployment = (name: string, model: string, key: string) =>
  `  - model_name: ${name}
    litellm_params: { model: openai/${model}, api_base: os.environ/HOUSE_URL, api_key: ${key} }`;

const CONFIG = `model_list:
${deployment("gpt-4o", "house-4o", "os.environ/HOUSE_KEY")}
${deployment("literal", "house-small", "sk-literal-123456789")}
  - model_name: unpriced
    litellm_params: { model: groq/no-such-model, api_key: sk-router-12345678 }
${deployment("partly", "house-partly", "os.environ/HOUSE_KEY")}
  - model_name: partly
    litellm_params: { model: groq/no-such-model, api_key: sk-router-12345678 }
  - model_name: machine
    litellm_params: { model: sagemaker/jumpstart }
router_settings:
  model_group_alias: { gpt-4: gpt-4o, dear: unpriced }
`;

const imported = (text: string, ...args: readonly string[]) =>
  target.imported("litellm", text, ...args);
const output = () => ["--output", join(target.folder, "out.json")];

test("without --apply nothing is stored", async () => {
  expect(await imported(CONFIG)).toMatchObject({ exitCode: 0 });
  expect(await imported(CONFIG, ...output())).toMatchObject({ exitCode: 0 });
  expect(await target.entries()).toEqual([]);
});

test("--apply and --output exclude each other", async () => {
  const { exitCode, stderr } = await imported(CONFIG, "--apply", ...output());
  expect({ exitCode, stderr }).toEqual({
    exitCode: 2,
    stderr: "use --apply or --output, not both\n",
  });
  expect(await target.entries()).toEqual([]);
});

test("--apply puts models, names and keys in force on a running gateway, keeps other entries, and reports what it left out", async () => {
  const alias = { id: "other", models: [{ id: "sandbox/chat" }] };
  const created = await target.gateway.request("POST", "/v1/admin/aliases", alias, {
    key: target.operator,
  });
  expect(created.status).toBe(201);
  const { exitCode, stdout, stderr } = await imported(CONFIG, "--apply");
  expect(exitCode, stderr).toBe(0);
  const lines = stdout.split("\n");
  for (const line of [
    "took: model team/gpt-4o at openai-compatible",
    "took: alias gpt-4 of team/gpt-4o",
    "left out: model_list[5] (machine): the provider sagemaker has no type here",
    "left out: model team/unpriced (team/unpriced) is not a built-in model",
    "left out: team/partly at groq: model team/partly (team/partly) is not a built-in model",
    "left out: alias dear: its models are left out",
    "add model team/literal",
  ]) {
    expect(
      lines.filter((one) => one.startsWith(line)),
      `${line}\n${stdout}`,
    ).toHaveLength(1);
  }
  expect(stdout).not.toMatch(/took: .*(unpriced|dear|groq\/)/);
  expect(stdout + stderr).not.toMatch(/sk-(literal|of-a-variable|router)/);
  const names = ["other", "gpt-4o", "literal", "partly", "gpt-4"];
  await until(
    "the aliases are in force",
    async () => (await target.stored("aliases")).length === names.length,
  );
  expect((await target.stored("aliases")).map(({ id }) => id).sort()).toEqual(names.toSorted());
  await until("the new provider is used", async () => (await target.chat("gpt-4o")).status === 200);
  for (const [name, model, key] of [
    ["gpt-4o", "house-4o", "sk-of-a-variable-12345678"],
    ["gpt-4", "house-4o", "sk-of-a-variable-12345678"],
    ["literal", "house-small", "sk-literal-123456789"],
    ["partly", "house-partly", "sk-of-a-variable-12345678"],
  ] as const) {
    const response = await target.chat(name);
    expect(response.status, await response.text()).toBe(200);
    expect(stub.requests.at(-1)).toMatchObject({ authorization: `Bearer ${key}`, body: { model } });
  }
  expect((await target.chat("dear")).status).toBe(404);
});

test("a second --apply changes nothing", async () => {
  const before = await target.entries();
  const { exitCode, stdout } = await imported(CONFIG, "--apply");
  expect({ exitCode, end: stdout.split("\n").at(-2) }).toEqual({
    exitCode: 0,
    end: "No differences.",
  });
  expect(await target.entries()).toEqual(before);
});

test("a name that already means a model here gives that model the endpoints of the name", async () => {
  const { exitCode, stdout, stderr } = await imported(
    `model_list:
${deployment("house", "house-chat", "os.environ/HOUSE_KEY")}
router_settings:
  model_group_alias: { chat-2026-01-01: house }
`,
    "--apply",
  );
  expect(exitCode, stderr).toBe(0);
  expect(stdout).toContain("note: chat-2026-01-01 means sandbox/chat-2026-01-01 here, which has");
  expect(stdout).toContain("took: model sandbox/chat-2026-01-01 at openai-compatible\n");
  await until("the model has moved", async () => {
    await target.chat("chat-2026-01-01");
    return stub.requests.at(-1)?.body.model === "house-chat";
  });
});

test("an import that names a variable that is not set stores nothing", async () => {
  const before = await target.entries();
  const text = CONFIG.replace("os.environ/HOUSE_KEY", "os.environ/NOT_SET_ANYWHERE").replace(
    "literal",
    "another",
  );
  const { exitCode, stderr } = await imported(text, "--apply");
  expect([exitCode, stderr.includes("NOT_SET_ANYWHERE is not set")]).toEqual([1, true]);
  expect(await target.entries()).toEqual(before);
});
