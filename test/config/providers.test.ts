import { describe, expect, test } from "bun:test";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PROVIDER_TYPES, providerType } from "../../src/platform/config/provider-types.ts";
import { isLocalServer } from "../../src/platform/config/providers.ts";
import { type GatewayConfig, readConfig } from "../../src/platform/config.ts";

function read(environment: Record<string, string>, providers: object[] = []): GatewayConfig {
  const cwd = mkdtempSync(join(tmpdir(), "gateway-config-"));
  if (providers.length > 0) {
    writeFileSync(join(cwd, "gateway.config.json"), JSON.stringify({ providers }));
  }
  return readConfig(environment, { cwd });
}

/** Without the sandbox, which is always there. */
function enabled(environment: Record<string, string>, providers: object[] = []) {
  return read(environment, providers).providers.filter(({ id }) => id !== "sandbox");
}

describe("a provider of the environment", () => {
  for (const [id, type] of Object.entries(PROVIDER_TYPES)) {
    const { environmentPrefix: prefix, hostedBaseUrl: baseUrl = type.defaultBaseUrl } = type;
    if (prefix === undefined || baseUrl === undefined) continue;
    test(`${id} is enabled by its key alone, at its published address`, () => {
      const half = type.batches === undefined ? {} : { batchPriceShare: 5_000 };
      expect(enabled({ [`${prefix}_API_KEY`]: "k" })).toEqual([
        { id, type: id, baseUrl, apiKey: "k", ...half },
      ]);
    });
  }

  test("takes another address, whose trailing slashes do not matter", () => {
    expect(enabled({ OPENAI_API_KEY: "k", OPENAI_BASE_URL: "http://127.0.0.1:9/v1//" })).toEqual([
      { id: "openai", type: "openai", baseUrl: "http://127.0.0.1:9/v1", apiKey: "k" },
    ]);
  });

  test("is enabled by its address alone, without a key", () => {
    expect(enabled({ OPENAI_BASE_URL: "http://127.0.0.1:9/v1", OPENAI_API_KEY: "" })).toEqual([
      { id: "openai", type: "openai", baseUrl: "http://127.0.0.1:9/v1" },
    ]);
  });

  test("that has no published address demands one", () => {
    expect(() => enabled({ AZURE_API_KEY: "k" })).toThrow("AZURE_BASE_URL is not set");
    const baseUrl = "https://me.openai.azure.com/openai/v1";
    expect(enabled({ AZURE_API_KEY: "k", AZURE_BASE_URL: baseUrl })).toEqual([
      { id: "azure", type: "azure", baseUrl, apiKey: "k" },
    ]);
  });
});

describe("batches of a provider", () => {
  const openai = { id: "mine", type: "openai", api_key: "k" };
  const share = (entry: object) => enabled({}, [entry])[0]!.batchPriceShare;

  test("are used where they are known, or the entry says so, at half the price or the stated share", () => {
    expect(share(openai)).toBe(5_000);
    expect(share({ ...openai, batches: false })).toBeUndefined();
    expect(share({ ...openai, batch_price_share: 0.2501 })).toBe(2_501);
    const elsewhere = { ...openai, base_url: "http://127.0.0.1:9/v1" };
    expect(share(elsewhere)).toBeUndefined();
    expect(share({ ...elsewhere, batches: true })).toBe(5_000);
    expect(share({ ...elsewhere, type: "openai-compatible" })).toBeUndefined();
    expect(share({ ...elsewhere, type: "openai-compatible", batches: true })).toBe(5_000);
  });

  test("that its type does not have cannot be asked for", () => {
    const groq = { id: "mine", type: "groq", api_key: "k", batches: true };
    expect(() => enabled({}, [groq])).toThrow(
      "/providers/0/batches is true, but must be false for a provider of type groq",
    );
    expect(() => enabled({}, [{ ...openai, batch_price_share: 1.5 }])).toThrow("from 0 to 1");
  });
});

describe("Amazon Bedrock", () => {
  const KEYS = { AWS_ACCESS_KEY_ID: "AKIAIOSFODNN7EXAMPLE", AWS_SECRET_ACCESS_KEY: "a/b+c" };
  const baseUrl = "https://bedrock-runtime.eu-west-1.amazonaws.com";
  const bedrock = { id: "bedrock", type: "bedrock", baseUrl, region: "eu-west-1" };

  test("is enabled by what AWS's own tools read", () => {
    const apiKey = "AKIAIOSFODNN7EXAMPLE:a/b+c";
    const AWS_REGION = "eu-west-1";
    expect(enabled({ ...KEYS, AWS_REGION })).toEqual([{ ...bedrock, apiKey }]);
    expect(enabled({ ...KEYS, AWS_DEFAULT_REGION: AWS_REGION })).toEqual([{ ...bedrock, apiKey }]);
    const AWS_SESSION_TOKEN = "token==";
    expect(enabled({ ...KEYS, AWS_REGION, AWS_SESSION_TOKEN })).toEqual([
      { ...bedrock, apiKey: `${apiKey}:token==` },
    ]);
    // A key of Bedrock goes before.
    expect(enabled({ ...KEYS, AWS_REGION, AWS_BEARER_TOKEN_BEDROCK: "ABSK1" })).toEqual([
      { ...bedrock, apiKey: "ABSK1" },
    ]);
    expect(enabled({ BEDROCK_API_KEY: "ABSK1", BEDROCK_BASE_URL: baseUrl })).toEqual([
      { ...bedrock, apiKey: "ABSK1" },
    ]);
  });

  test("needs a region: an access key without one is for something else", () => {
    expect(enabled(KEYS)).toEqual([]);
    expect(enabled({ AWS_REGION: "eu-west-1" })).toEqual([]);
    expect(() => enabled({ AWS_BEARER_TOKEN_BEDROCK: "ABSK1" })).toThrow("AWS_REGION is not set");
    expect(() => enabled({ ...KEYS, AWS_REGION: "Ireland" })).toThrow("a region like us-east-1");
  });

  test("of the file takes a key of its own, in one piece or in parts, or that of the environment", () => {
    const environment = { ...KEYS, SECRET: "s/e", TOKEN: "t==" };
    const entry = (more: object) => [{ id: "aws", type: "bedrock", ...more }];
    const aws = {
      region: "eu-west-1",
      access_key_id: "AKIAOTHERS00000000",
      secret_access_key_env: "SECRET",
      session_token_env: "TOKEN",
    };
    expect(enabled(environment, entry({ aws }))).toEqual([
      { ...bedrock, id: "aws", apiKey: "AKIAOTHERS00000000:s/e:t==" },
    ]);
    const proxied = entry({
      base_url: "https://proxy.test",
      api_key: "ABSK1",
      aws: { region: "eu-west-1" },
    });
    expect(enabled({}, proxied)).toEqual([
      { ...bedrock, id: "aws", baseUrl: "https://proxy.test", apiKey: "ABSK1" },
    ]);
    const named = [{ id: "bedrock", type: "bedrock", aws: { region: "us-west-2" } }];
    expect(enabled({ ...KEYS, AWS_REGION: "eu-west-1" }, named)).toEqual([
      {
        id: "bedrock",
        type: "bedrock",
        baseUrl: "https://bedrock-runtime.us-west-2.amazonaws.com",
        region: "us-west-2",
        apiKey: "AKIAIOSFODNN7EXAMPLE:a/b+c",
      },
    ]);
  });

  test.each([
    [{ aws: { region: "eu-west-1", access_key_id: "AKIA0123456789ABCDEF" } }, "together"],
    [{ aws: { region: "eu-west-1", session_token: "hunter2" } }, "together"],
    [
      {
        api_key: "hunter2",
        aws: {
          region: "eu-west-1",
          access_key_id: "AKIA0123456789ABCDEF",
          secret_access_key: "hunter2",
        },
      },
      "has both an access key in aws and another key",
    ],
    [{ aws: { region: "hunter" } }, "a region like us-east-1"],
    [
      { type: "openai", aws: { region: "eu-west-1" } },
      "aws applies only to providers of type bedrock",
    ],
    [{ api_key: "ABSK1" }, "aws/region is not set"],
  ])("%j is refused, and shows no secret", (more, message) => {
    const entry = [{ id: "aws", type: "bedrock", ...more }];
    let told = "";
    try {
      enabled({}, entry);
    } catch (error) {
      told = (error as Error).message;
    }
    expect(told).toContain(message);
    expect(told).not.toContain("hunter2");
  });
});

describe("a server that the operator runs", () => {
  test.each([
    ["vllm", "http://127.0.0.1:8000/v1"],
    ["sglang", "http://127.0.0.1:30000/v1"],
    ["llama-cpp", "http://127.0.0.1:8080/v1"],
    ["lm-studio", "http://127.0.0.1:1234/v1"],
    ["ollama", "http://127.0.0.1:11434/v1"],
    ["litellm", "http://127.0.0.1:4000/v1"],
  ])("of type %s needs neither a key nor an address", (type, baseUrl) => {
    expect(enabled({}, [{ id: "box", type }])).toEqual([{ id: "box", type, baseUrl }]);
  });

  test("of Ollama is not shown the key of Ollama's cloud, which a key alone leads to", () => {
    const cloud = { id: "ollama", type: "ollama", baseUrl: "https://ollama.com/v1", apiKey: "k" };
    const local = { id: "ollama", type: "ollama", baseUrl: "http://127.0.0.1:11434/v1" };
    expect(enabled({ OLLAMA_API_KEY: "k" })).toEqual([cloud]);
    expect(isLocalServer(cloud)).toBeFalse();
    expect(enabled({ OLLAMA_BASE_URL: local.baseUrl })).toEqual([local]);
    expect(enabled({ OLLAMA_API_KEY: "k" }, [{ id: "ollama", type: "ollama" }])).toEqual([local]);
    const both = { OLLAMA_API_KEY: "k", OLLAMA_BASE_URL: "https://box.example/v1" };
    const own = { ...local, baseUrl: "https://box.example/v1", apiKey: "k" };
    expect(enabled(both)).toEqual([own]);
    expect(enabled(both, [{ id: "ollama", type: "ollama" }])).toEqual([own]);
  });

  test("is enabled by its address alone", () => {
    const config = read({ LM_STUDIO_BASE_URL: "http://studio:1234/v1" });
    expect(config.providers).toContainEqual({
      id: "lm-studio",
      type: "lm-studio",
      baseUrl: "http://studio:1234/v1",
    });
  });

  test("has free models at a private address, unless it passes calls on to those who charge", () => {
    const free = (type: string, baseUrl: string) => isLocalServer({ id: "box", type, baseUrl });
    expect(free("vllm", "http://10.0.0.7:8000/v1")).toBeTrue();
    expect(free("ollama", "http://ollama:11434/v1")).toBeTrue();
    expect(free("vllm", "https://vllm.example.com/v1")).toBeFalse();
    expect(free("litellm", "http://127.0.0.1:4000/v1")).toBeFalse();
    expect(free("openai", "http://127.0.0.1:4000/v1")).toBeFalse();
  });
});

describe("a provider of the file", () => {
  test("comes first, then those of the environment, then the sandbox", () => {
    const local = { id: "local", type: "openai-compatible", base_url: "http://a/v1" };
    const config = read({ GROQ_API_KEY: "k", OPENAI_API_KEY: "k" }, [local]);
    expect(config.providers.map(({ id }) => id)).toEqual(["local", "openai", "groq", "sandbox"]);
  });

  test("under a built-in name takes what it leaves out from that provider's variables", () => {
    expect(enabled({ OPENAI_API_KEY: "k" }, [{ id: "openai", type: "openai" }])).toEqual([
      {
        ...{ id: "openai", type: "openai", baseUrl: "https://api.openai.com/v1", apiKey: "k" },
        batchPriceShare: 5_000,
      },
    ]);
    const own = { id: "openai", type: "openai", base_url: "http://proxy/v1", api_key: "mine" };
    expect(enabled({ OPENAI_API_KEY: "k", OPENAI_BASE_URL: "http://other" }, [own])).toEqual([
      { id: "openai", type: "openai", baseUrl: "http://proxy/v1", apiKey: "mine" },
    ]);
  });

  test("under a built-in name of another type never receives that provider's key", () => {
    const local = { id: "openai", type: "openai-compatible", base_url: "http://local/v1" };
    expect(enabled({ OPENAI_API_KEY: "k" }, [local])).toEqual([
      { id: "openai", type: "openai-compatible", baseUrl: "http://local/v1" },
    ]);
  });

  test("that names a built-in provider's key is the only one to use it", () => {
    const europe = {
      id: "openai-eu",
      type: "openai",
      base_url: "https://eu.api.openai.com/v1",
      api_key_env: "OPENAI_API_KEY",
    };
    expect(enabled({ OPENAI_API_KEY: "k" }, [europe]).map(({ id }) => id)).toEqual(["openai-eu"]);
  });

  test("of a known type needs no address", () => {
    expect(enabled({}, [{ id: "second", type: "groq", api_key: "k" }])).toEqual([
      { id: "second", type: "groq", baseUrl: "https://api.groq.com/openai/v1", apiKey: "k" },
    ]);
  });

  test("may be the sandbox, also under another name", () => {
    const config = read({}, [
      { id: "sandbox", type: "sandbox" },
      { id: "drill", type: "sandbox" },
    ]);
    expect(config.providers).toEqual([
      { id: "sandbox", type: "sandbox", baseUrl: "" },
      { id: "drill", type: "sandbox", baseUrl: "" },
    ]);
  });
});

describe("the table of provider types", () => {
  test("has well-formed published addresses and prefixes of their own", () => {
    const types = Object.values(PROVIDER_TYPES);
    for (const { defaultBaseUrl, isSelfHosted } of types) {
      if (defaultBaseUrl === undefined) continue;
      expect(defaultBaseUrl).toMatch(
        isSelfHosted ? /^http:\/\/127\.0\.0\.1:\d+\/v1$/ : /^https:\/\/.*[^/]$/,
      );
    }
    const prefixes = types
      .map((type) => type.environmentPrefix)
      .filter((prefix) => prefix !== undefined);
    expect(new Set(prefixes).size).toBe(prefixes.length);
  });

  test("knows nothing of the object prototype", () => {
    expect(providerType("openai")?.wire).toBe("openai");
    for (const name of ["constructor", "toString", "__proto__", ""]) {
      expect(providerType(name)).toBeUndefined();
    }
  });
});
