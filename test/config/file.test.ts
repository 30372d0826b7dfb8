import { describe, expect, test } from "bun:test";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { ConfigError } from "../../src/platform/config/config-error.ts";
import { publishedFileSchema } from "../../src/platform/config/file-schema.ts";
import { type GatewayConfig, readConfig } from "../../src/platform/config.ts";

function folder(): string {
  return mkdtempSync(join(tmpdir(), "gateway-config-"));
}

/** Reads a file of that content, found under its default name. */
function read(content: unknown, environment: Record<string, string> = {}): GatewayConfig {
  const cwd = folder();
  const text = typeof content === "string" ? content : JSON.stringify(content);
  writeFileSync(join(cwd, "gateway.config.json"), text);
  return readConfig(environment, { cwd });
}

function refusal(content: unknown, environment: Record<string, string> = {}): string {
  try {
    read(content, environment);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error(`accepted: ${JSON.stringify(content)}`);
}

const PROVIDER = { id: "backup", type: "openai-compatible", base_url: "http://10.0.0.7:8000/v1" };
const MODEL = {
  id: "openai/gpt-4o-mini",
  name: "GPT-4o mini",
  category: "chat",
  context_length: 128000,
  max_output_tokens: 16384,
  input_cost_per_token: 1.5e-7,
  output_cost_per_token: 6e-7,
  cached_input_cost_per_token: 7.5e-8,
  capabilities: ["streaming", "function_calling", "vision", "json_mode"],
  endpoints: [
    { provider: "openai", model: "gpt-4o-mini" },
    { provider: "backup", model: "gpt-4o-mini" },
  ],
};

describe("the file", () => {
  test("of the contract's example is read", () => {
    const example = {
      providers: [
        {
          id: "openai",
          type: "openai",
          base_url: "https://api.openai.com/v1",
          api_key_env: "OPENAI_API_KEY",
        },
        { ...PROVIDER, api_key: "local-key" },
      ],
      models: [MODEL],
    };
    const config = read(example, { OPENAI_API_KEY: "sk-1" });
    expect(config.configFile).toBe("gateway.config.json");
    expect(config.providers).toEqual([
      {
        ...{ id: "openai", type: "openai", baseUrl: "https://api.openai.com/v1", apiKey: "sk-1" },
        batchPriceShare: 5_000,
      },
      {
        id: "backup",
        type: "openai-compatible",
        baseUrl: "http://10.0.0.7:8000/v1",
        apiKey: "local-key",
      },
      { id: "sandbox", type: "sandbox", baseUrl: "" },
    ]);
    expect(config.models).toEqual([
      { ...MODEL, source: "gateway.config.json /models/0" },
    ] as GatewayConfig["models"]);
    expect(config.warnings).toEqual([]);
  });

  test("is taken from GATEWAY_CONFIG, relative to the working folder or absolute", () => {
    const cwd = folder();
    const path = join(cwd, "other.json");
    writeFileSync(path, '{"sandbox": false}');
    for (const named of ["other.json", path]) {
      const config = readConfig({ GATEWAY_CONFIG: named }, { cwd });
      expect(config.configFile).toBe(named);
      expect(config.sandbox).toBe(false);
      expect(config.providers).toEqual([]);
    }
  });

  test("may be empty of settings", () => {
    expect(read({}).providers.map(({ id }) => id)).toEqual(["sandbox"]);
  });

  test("that cannot be read is refused", () => {
    const cwd = folder();
    expect(() => readConfig({ GATEWAY_CONFIG: "." }, { cwd })).toThrow(
      'GATEWAY_CONFIG is ".", but must be a file that can be read (EISDIR)',
    );
  });

  test("that is no JSON is refused without quoting it", () => {
    expect(refusal('{"providers": [{"api_key": hunter2}]}')).toBe(
      "gateway.config.json is not JSON (line 1), but must be a JSON object (RFC 8259: no comments)",
    );
    expect(refusal("")).toContain("is not JSON");
  });
});

describe("what is wrong is named with its JSON pointer", () => {
  const provider = (change: object) => ({ providers: [{ ...PROVIDER, ...change }] });
  const model = (change: object) => ({ providers: [PROVIDER], models: [{ ...MODEL, ...change }] });
  const cases: [string, unknown, string][] = [
    ["a list", [], "gateway.config.json is a list, but must be an object"],
    ["null", null, "gateway.config.json is null, but must be an object"],
    ["an unknown member", { modles: [] }, "gateway.config.json /modles is unknown, but must be"],
    [
      "an unknown member of a provider",
      provider({ url: "x" }),
      "gateway.config.json /providers/0/url is unknown, but must be one of id, type, base_url",
    ],
    [
      "an unknown member of a model",
      model({ contextLength: 5 }),
      "gateway.config.json /models/0/contextLength is unknown",
    ],
    [
      "an unknown member of an endpoint",
      model({ endpoints: [{ provider: "backup", model: "x", wait: 1 }] }),
      "gateway.config.json /models/0/endpoints/0/wait is unknown",
    ],
    [
      "a provider without an id",
      { providers: [{ type: "openai" }] },
      "gateway.config.json /providers/0/id is not set, but must be an id of letters",
    ],
    [
      "an id with a slash",
      provider({ id: "a/b" }),
      'gateway.config.json /providers/0/id is "a/b", but must be an id of letters',
    ],
    [
      "an unknown type",
      provider({ type: "openia" }),
      'gateway.config.json /providers/0/type is "openia", but must be one of openai, anthropic, mistral',
    ],
    [
      "a type of the object prototype",
      provider({ type: "constructor" }),
      'gateway.config.json /providers/0/type is "constructor", but must be one of',
    ],
    [
      "an address that is no URL",
      provider({ base_url: "localhost:8000" }),
      'gateway.config.json /providers/0/base_url is "localhost:8000", but must be an http or https URL',
    ],
    [
      "a missing address",
      { providers: [{ id: "local", type: "openai-compatible" }] },
      "gateway.config.json /providers/0/base_url is not set, but must be an http or https URL",
    ],
    [
      "a missing address of Azure",
      { providers: [{ id: "azure", type: "azure", api_key: "k" }] },
      "gateway.config.json /providers/0/base_url is not set",
    ],
    [
      "both forms of a key",
      provider({ api_key: "a", api_key_env: "B" }),
      "gateway.config.json /providers/0 has both api_key and api_key_env",
    ],
    [
      "a key variable that is unset",
      provider({ api_key_env: "BACKUP_KEY" }),
      "BACKUP_KEY is not set, but must be the API key of backup (gateway.config.json /providers/0/api_key_env)",
    ],
    [
      "two providers of one id",
      { providers: [PROVIDER, PROVIDER] },
      'gateway.config.json /providers/1/id is "backup", but must be an id that no other entry has',
    ],
    [
      "two models of one id",
      { providers: [PROVIDER], models: [1, 2].map(() => ({ ...MODEL, endpoints: undefined })) },
      'gateway.config.json /models/1/id is "openai/gpt-4o-mini", but must be an id that no other',
    ],
    [
      "the sandbox's id for another type",
      provider({ id: "sandbox" }),
      'gateway.config.json /providers/0/id is "sandbox", but must be another id',
    ],
    [
      "a model id without an author",
      model({ id: "gpt-4o-mini" }),
      'gateway.config.json /models/0/id is "gpt-4o-mini", but must be a model id like author/slug',
    ],
    [
      "an endpoint at an unknown provider",
      model({ endpoints: [{ provider: "openai", model: "gpt-4o-mini" }] }),
      'gateway.config.json /models/0/endpoints/0/provider is "openai", but must be one of the providers backup, sandbox',
    ],
    [
      "no endpoint at all",
      model({ endpoints: [] }),
      "gateway.config.json /models/0/endpoints is a list, but must be a list of 1 to 32 endpoints",
    ],
    [
      "a category that does not exist",
      model({ category: "video" }),
      'gateway.config.json /models/0/category is "video", but must be one of chat, embedding',
    ],
    [
      "a negative price",
      model({ input_cost_per_token: -1e-7 }),
      "gateway.config.json /models/0/input_cost_per_token is -1e-7, but must be a price in USD",
    ],
    [
      "a price as text",
      model({ output_cost_per_token: "6e-7" }),
      'gateway.config.json /models/0/output_cost_per_token is "6e-7", but must be a price in USD',
    ],
    [
      "a fraction of a token",
      model({ context_length: 0.5 }),
      "gateway.config.json /models/0/context_length is 0.5, but must be a whole number of tokens",
    ],
    [
      "a name with a line break",
      model({ name: "a\nb" }),
      'gateway.config.json /models/0/name is "a\\nb", but must be a text',
    ],
    [
      "a sandbox that is neither on nor off",
      { sandbox: "no" },
      'gateway.config.json /sandbox is "no", but must be true or false',
    ],
  ];
  for (const [title, content, expected] of cases) {
    test(title, () => expect(refusal(content)).toStartWith(expected));
  }

  test("one key or several, not both, and none twice", () => {
    for (const [change, expected] of [
      [{ api_keys: [{ weight: 1 }] }, "/api_keys/0 has neither key nor key_env"],
      [{ api_keys: [{ key: "a", key_env: "B" }] }, "/api_keys/0 has both key and key_env"],
      [{ api_key: "a", api_keys: [{ key: "b" }] }, " has both api_keys and a single key"],
      [{ api_keys: [{ key: "a" }, { key: "a" }] }, "/api_keys has one key twice"],
    ] as const) {
      expect(refusal(provider(change))).toStartWith(`gateway.config.json /providers/0${expected}`);
    }
  });

  test("a key is never shown", () => {
    for (const change of [
      { api_key: "hunter2 hunter2" },
      { api_key: ["hunter2"] },
      { api_key: "hunter2", base_url: "http://hunter2@host" },
      { api_key: "hunter2", base_url: ["http://hunter2@host"] },
      { api_key: "hunter2", id: 5 },
      { api_key_env: "hunter2-" },
      { api_key_env: "hunter2" },
      { base_url: "http://x/v1?key=hunter2" },
      { api_keys: [{ key: "hunter2 hunter2" }] },
      { api_keys: [{ key: 5, key_env: "hunter2-" }] },
      { api_keys: [{ key_env: "hunter2" }] },
      { api_keys: [{ key: "hunter2" }, { key: "hunter2" }] },
      { api_keys: ["hunter2"] },
    ]) {
      const line = refusal(provider(change));
      expect(line).not.toContain("hunter2");
    }
    expect(refusal(provider({ api_key_env: "LOCAL_KEY" }), { LOCAL_KEY: "hunter2 " })).toBe(
      "LOCAL_KEY is ***, but must be printable ASCII without spaces",
    );
  });
});

test("all that is wrong is told at once, each in a line of its own, with what the environment has wrong", () => {
  const content = {
    providers: [
      { ...PROVIDER, api_keys: [], typo: 1 },
      { id: "x/y", type: "openai" },
      { type: 5 },
      ...Array.from({ length: 20 }, () => ({ id: "", type: "openai" })),
    ],
    models: [{ ...MODEL, category: "video", context_length: 0 }],
    sandbox: "no",
  };
  const lines = refusal(content, { PORT: "many", OPENAI_BASE_URL: "nowhere" }).split("\n");
  for (const expected of [
    "PORT is",
    "OPENAI_BASE_URL is",
    "gateway.config.json /providers/0/api_keys is",
    "gateway.config.json /providers/0/typo is unknown",
    "gateway.config.json /providers/1/id is",
    "gateway.config.json /providers/2/id is not set",
    "gateway.config.json /providers/2/type is 5",
    "gateway.config.json /providers/22/id is",
    "gateway.config.json /models/0/category is",
    "gateway.config.json /models/0/context_length is 0",
    "gateway.config.json /sandbox is",
  ]) {
    expect(lines.filter((line) => line.startsWith(expected))).toHaveLength(1);
  }
  expect(lines).toHaveLength(30);
});

test("what is wrong with entries of the right form is told at once too", () => {
  const content = {
    providers: [
      { ...PROVIDER, base_url: "nowhere" },
      { id: "other", type: "openia" },
      { id: "other", type: "openai" },
    ],
    models: [{ ...MODEL, endpoints: [{ provider: "none", model: "a" }] }],
  };
  expect(refusal({ ...content, providers: content.providers.slice(0, 2) }).split("\n")).toEqual([
    expect.stringContaining("/providers/0/base_url is"),
    expect.stringContaining("/providers/1/type is"),
    expect.stringContaining("/models/0/endpoints/0/provider is"),
  ]);
  expect(refusal(content)).toContain("/providers/2/id is");
});

test.each([
  ['{\n  "sandbox": true,\n}', 3],
  ['{\n  "sandbox": true\n  "models": []\n}', 3],
  ['{\n  // note\n  "sandbox": true\n}', 2],
  ['{\n\n"name": "broken\nover lines"}', 3],
  ['{"a": [1,\n2\n', 3],
  ["[1]\n]", 2],
  ["{'a': 1}", 1],
  ["[01]", 1],
  ['{"a"\n1}', 2],
])("a text that is no JSON is refused with the line of its first fault: %j", (text, line) => {
  expect(refusal(text)).toStartWith(`gateway.config.json is not JSON (line ${line})`);
});

test("the published schema is the one that is checked with", async () => {
  const path = join(import.meta.dir, "..", "..", "gateway.config.schema.json");
  expect(await Bun.file(path).json()).toEqual(JSON.parse(JSON.stringify(publishedFileSchema())));
  const named = read({ $schema: "./gateway.config.schema.json" });
  expect(named.providers.map(({ id }) => id)).toEqual(["sandbox"]);
});

test("any JSON is either accepted or refused, each fault in one line", () => {
  const entry = fc.oneof(
    fc.jsonValue(),
    fc.record(
      { id: fc.jsonValue(), type: fc.jsonValue(), endpoints: fc.jsonValue() },
      { requiredKeys: [] },
    ),
  );
  const content = fc.oneof(
    fc.jsonValue(),
    fc.record(
      {
        providers: fc.oneof(entry, fc.array(entry)),
        models: fc.oneof(entry, fc.array(entry)),
        sandbox: fc.jsonValue(),
      },
      { requiredKeys: [] },
    ),
  );
  const cwd = folder();
  fc.assert(
    fc.property(content, (value) => {
      writeFileSync(join(cwd, "gateway.config.json"), JSON.stringify(value));
      try {
        readConfig({}, { cwd });
      } catch (error) {
        expect(error).toBeInstanceOf(ConfigError);
        const { faults, message } = error as ConfigError;
        expect(message.split("\n")).toEqual([...faults]);
      }
    }),
    { numRuns: 200 },
  );
});
