import { describe, expect, test } from "bun:test";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { CONFIG_VARIABLES } from "../../src/platform/config/variables.ts";
import { type GatewayConfig, readConfig } from "../../src/platform/config.ts";

const cwd = mkdtempSync(join(tmpdir(), "gateway-config-"));
const MASTER_KEY = Buffer.from(new Uint8Array(32).fill(7)).toString("base64");

function read(environment: Record<string, string | undefined>): GatewayConfig {
  return readConfig(environment, { cwd });
}

describe("without any variable", () => {
  test("every setting has the default of the contract", () => {
    expect(read({})).toEqual({
      port: 3000,
      host: "127.0.0.1",
      hostIsLoopback: true,
      keysSignIn: true,
      mail: undefined,
      publicUrl: undefined,
      dataDir: join(cwd, ".data"),
      databaseUrl: undefined,
      databasePoolSize: 10,
      redisUrl: undefined,
      configFile: undefined,
      providersOfFile: [],
      aliases: [],
      prices: [],
      managementKey: undefined,
      secretKey: undefined,
      operatorKey: undefined,
      masterKey: undefined,
      previousMasterKey: undefined,
      startingCreditNanoUsd: 10_000_000_000n,
      proPriceNanoUsd: 20_000_000_000n,
      fileSearchNanoUsd: 0n,
      plan: "free",
      completionSuccessSample: 0.1,
      webhookRetryDelaysMs: [10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000],
      webhookAllowHttp: false,
      egressAllow: [],
      trustedProxies: [],
      auditLogDays: 400,
      singleSignOn: undefined,
      mcpServers: [],
      upstreamTimeouts: {
        connectMs: 5000,
        firstTokenMs: 120_000,
        idleMs: 120_000,
        totalMs: 600_000,
        fullMs: 10_000,
      },
      uploadMinBytesPerSecond: 32_768,
      corsOrigins: [],
      metricsToken: undefined,
      modelListsSeconds: 3600,
      healthCheckSeconds: 10,
      responseCache: { maxEntries: 10_000, maxBytes: 268_435_456 },
      vectorStoreModel: undefined,
      moderationModel: "sandbox/moderation",
      usesSandboxFallbacks: true,
      codeInterpreter: undefined,
      debugEcho: false,
      testPayments: true,
      keepaliveMs: 15_000,
      connectionIdleSeconds: 30,
      maxBackgroundResponses: 100,
      shutdownGraceMs: 25_000,
      stripe: undefined,
      s3: undefined,
      search: undefined,
      tracing: undefined,
      metricExport: undefined,
      logLevel: "info",
      logFormat: "auto",
      providers: [{ id: "sandbox", type: "sandbox", baseUrl: "" }],
      models: [],
      sandbox: true,
      proxies: { http: undefined, https: undefined, exempt: [] },
      maxOutboundRequests: 256,
      warnings: [],
    });
  });

  test("an empty variable counts as unset", () => {
    const empty = Object.fromEntries(CONFIG_VARIABLES.map(({ name }) => [name, ""]));
    expect(read(empty)).toEqual(read({}));
  });

  test("the documented default of a variable is the one in force", () => {
    for (const { name, default: text } of CONFIG_VARIABLES) {
      if (text !== null && !name.endsWith("_BASE_URL")) {
        expect(read({ [name]: text })).toEqual(read({}));
      }
    }
  });
});

test("hosts of MCP servers are names, or stand for all below one", () => {
  const { mcpServers } = read({ GATEWAY_MCP_SERVERS: "MCP.example.com, *.example.org,*" });
  expect(mcpServers).toEqual(["mcp.example.com", "*.example.org", "*"]);
  for (const wrong of ["https://mcp.example.com", "a b", "*.*", "*example.com", "a,,b"]) {
    expect(() => read({ GATEWAY_MCP_SERVERS: wrong })).toThrow("GATEWAY_MCP_SERVERS");
  }
});

test("the configuration is frozen all through", () => {
  const config = read({
    S3_BUCKET: "files",
    S3_ACCESS_KEY_ID: "id",
    S3_SECRET_ACCESS_KEY: "secret",
    GATEWAY_EGRESS_ALLOW: "10.0.0.0/8",
  });
  for (const part of [
    config,
    config.s3,
    config.egressAllow,
    config.providers,
    config.providers[0],
  ]) {
    expect(Object.isFrozen(part)).toBe(true);
  }
});

const MANAGEMENT_KEY = generateApiKey("management").key;
const SECRET_KEY = generateApiKey("secret").key;

describe("each variable takes what is documented", () => {
  const cases: [Record<string, string>, Partial<GatewayConfig>][] = [
    [{ PORT: "0" }, { port: 0 }],
    [{ PORT: "65535" }, { port: 65_535 }],
    [{ HOST: "0.0.0.0" }, { host: "0.0.0.0", hostIsLoopback: false }],
    [{ HOST: "::1" }, { host: "::1", hostIsLoopback: true }],
    [{ HOST: "localhost" }, { host: "localhost", hostIsLoopback: true }],
    [{ HOST: "127.example.com" }, { host: "127.example.com", hostIsLoopback: false }],
    [
      { GATEWAY_PUBLIC_URL: "https://gateway.example.com:8443/ai/" },
      { publicUrl: "https://gateway.example.com:8443/ai" },
    ],
    [{ GATEWAY_UPLOAD_MIN_BYTES_PER_SECOND: "1" }, { uploadMinBytesPerSecond: 1 }],
    [{ GATEWAY_CODE_INTERPRETER_SECONDS: "5" }, { codeInterpreter: undefined }],
    [
      { GATEWAY_CODE_INTERPRETER: "true", GATEWAY_CODE_INTERPRETER_WHEELS: "wheels" },
      {
        codeInterpreter: {
          maxProcesses: 4,
          maxRunSeconds: 30,
          maxMemoryBytes: 536_870_912,
          wheelFolder: "wheels",
        },
      },
    ],
    [{ DATA_DIR: "/var/lib/gateway" }, { dataDir: "/var/lib/gateway" }],
    [{ DATA_DIR: "state" }, { dataDir: join(cwd, "state") }],
    [
      { DATABASE_URL: "postgres://u:p@db/gateway", GATEWAY_MASTER_KEY: MASTER_KEY },
      { databaseUrl: "postgres://u:p@db/gateway", masterKey: MASTER_KEY },
    ],
    [
      { DATABASE_URL: "postgresql:///gateway?host=/run", GATEWAY_MASTER_KEY: MASTER_KEY },
      { databaseUrl: "postgresql:///gateway?host=/run" },
    ],
    [{ DATABASE_POOL_SIZE: "1" }, { databasePoolSize: 1 }],
    [{ REDIS_URL: "redis://cache:6379/1" }, { redisUrl: "redis://cache:6379/1" }],
    [{ REDIS_URL: "rediss://:p@cache" }, { redisUrl: "rediss://:p@cache" }],
    [{ GATEWAY_MANAGEMENT_KEY: MANAGEMENT_KEY }, { managementKey: MANAGEMENT_KEY }],
    [{ GATEWAY_SECRET_KEY: SECRET_KEY }, { secretKey: SECRET_KEY }],
    [{ GATEWAY_STARTING_CREDIT_USD: "0" }, { startingCreditNanoUsd: 0n }],
    [{ GATEWAY_STARTING_CREDIT_USD: "0.000000001" }, { startingCreditNanoUsd: 1n }],
    [{ GATEWAY_STARTING_CREDIT_USD: "12.5" }, { startingCreditNanoUsd: 12_500_000_000n }],
    [{ GATEWAY_PLAN: "pro" }, { plan: "pro" }],
    [{ GATEWAY_PLAN: "byok" }, { plan: "byok" }],
    [{ GATEWAY_PLAN: "enterprise" }, { plan: "enterprise" }],
    [{ GATEWAY_COMPLETION_SUCCESS_SAMPLE: "1" }, { completionSuccessSample: 1 }],
    [{ GATEWAY_COMPLETION_SUCCESS_SAMPLE: "0.25" }, { completionSuccessSample: 0.25 }],
    [{ GATEWAY_WEBHOOK_RETRY_DELAYS: "1, 0.5,0" }, { webhookRetryDelaysMs: [1000, 500, 0] }],
    [{ GATEWAY_WEBHOOK_ALLOW_HTTP: "1" }, { webhookAllowHttp: true }],
    [{ GATEWAY_WEBHOOK_ALLOW_HTTP: "true" }, { webhookAllowHttp: true }],
    [{ GATEWAY_WEBHOOK_ALLOW_HTTP: "0" }, { webhookAllowHttp: false }],
    [
      { GATEWAY_EGRESS_ALLOW: "10.0.0.0/8, fd00::/8,127.0.0.1/32" },
      { egressAllow: ["10.0.0.0/8", "fd00::/8", "127.0.0.1/32"] },
    ],
    [{ GATEWAY_TRUSTED_PROXIES: "10.0.0.0/8" }, { trustedProxies: ["10.0.0.0/8"] }],
    [
      {
        GATEWAY_UPSTREAM_CONNECT_TIMEOUT_MS: "1",
        GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS: "2",
        GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS: "3",
        GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS: "4",
        GATEWAY_UPSTREAM_FULL_TIMEOUT_MS: "5",
      },
      { upstreamTimeouts: { connectMs: 1, firstTokenMs: 2, idleMs: 3, totalMs: 4, fullMs: 5 } },
    ],
    [{ GATEWAY_CORS_ORIGINS: "*" }, { corsOrigins: ["*"] }],
    [
      { GATEWAY_CORS_ORIGINS: "https://a.example.com, http://localhost:5173" },
      { corsOrigins: ["https://a.example.com", "http://localhost:5173"] },
    ],
    [{ GATEWAY_METRICS_TOKEN: "abc" }, { metricsToken: "abc" }],
    [{ GATEWAY_KEEPALIVE_MS: "100" }, { keepaliveMs: 100 }],
    [{ GATEWAY_CONNECTION_IDLE_SECONDS: "255" }, { connectionIdleSeconds: 255 }],
    [{ GATEWAY_SHUTDOWN_GRACE_MS: "0" }, { shutdownGraceMs: 0 }],
    [
      { STRIPE_SECRET_KEY: "sk_test_1", STRIPE_WEBHOOK_SECRET: "whsec_1" },
      {
        stripe: {
          secretKey: "sk_test_1",
          webhookSecret: "whsec_1",
          apiBase: "https://api.stripe.com",
          proPriceId: undefined,
        },
      },
    ],
    [
      {
        STRIPE_SECRET_KEY: "sk_test_1",
        STRIPE_API_BASE: "http://127.0.0.1:12111/",
        STRIPE_PRO_PRICE_ID: "price_1",
      },
      {
        stripe: {
          secretKey: "sk_test_1",
          webhookSecret: undefined,
          apiBase: "http://127.0.0.1:12111",
          proPriceId: "price_1",
        },
      },
    ],
    [
      {
        S3_BUCKET: "files",
        S3_ENDPOINT: "http://127.0.0.1:9000",
        S3_ACCESS_KEY_ID: "id",
        S3_SECRET_ACCESS_KEY: "secret",
        S3_REGION: "eu-central-1",
      },
      {
        s3: {
          bucket: "files",
          endpoint: "http://127.0.0.1:9000",
          region: "eu-central-1",
          accessKeyId: "id",
          secretAccessKey: "secret",
        },
      },
    ],
    [
      { GATEWAY_SEARCH_BACKEND: "searxng", GATEWAY_SEARCH_URL: "http://searxng:8080/" },
      {
        search: {
          backend: "searxng",
          url: "http://searxng:8080",
          apiKey: undefined,
          priceNanoUsd: 0n,
        },
      },
    ],
    ...(
      [
        ["brave", "https://api.search.brave.com", 5_000_000n],
        ["tavily", "https://api.tavily.com", 8_000_000n],
        ["exa", "https://api.exa.ai", 7_000_000n],
      ] as const
    ).map(([backend, url, priceNanoUsd]): [Record<string, string>, Partial<GatewayConfig>] => [
      { GATEWAY_SEARCH_BACKEND: backend, GATEWAY_SEARCH_API_KEY: "k" },
      { search: { backend, url, apiKey: "k", priceNanoUsd } },
    ]),
    [
      {
        GATEWAY_SEARCH_BACKEND: "exa",
        GATEWAY_SEARCH_API_KEY: "k",
        GATEWAY_WEB_SEARCH_COST_USD: "0.000000001",
      },
      {
        search: {
          backend: "exa",
          url: "https://api.exa.ai",
          apiKey: "k",
          priceNanoUsd: 1n,
        },
      },
    ],
    [{ LOG_LEVEL: "silent" }, { logLevel: "silent" }],
    [
      {
        OTEL_EXPORTER_OTLP_ENDPOINT: "http://otel:4318/",
        OTEL_EXPORTER_OTLP_HEADERS: "Authorization=Basic%20YTpi, x-team=a",
        OTEL_TRACES_SAMPLER_ARG: "0.1",
      },
      {
        tracing: {
          url: "http://otel:4318/v1/traces",
          headers: { authorization: "Basic YTpi", "x-team": "a" },
          sampleRatio: 0.1,
          serviceName: "model-gateway",
          withContent: false,
        },
        metricExport: undefined,
      },
    ],
    [
      {
        OTEL_EXPORTER_OTLP_ENDPOINT: "http://otel:4318",
        OTEL_EXPORTER_OTLP_HEADERS: "x-key=traces",
        OTEL_METRICS_EXPORTER: "otlp",
        OTEL_METRIC_EXPORT_INTERVAL: "5000",
        OTEL_SERVICE_NAME: "gateway-eu",
      },
      {
        metricExport: {
          url: "http://otel:4318/v1/metrics",
          headers: { "x-key": "traces" },
          everyMs: 5_000,
          serviceName: "gateway-eu",
        },
      },
    ],
    [
      // The key of the one collector is not for the other.
      {
        OTEL_EXPORTER_OTLP_ENDPOINT: "http://otel:4318",
        OTEL_EXPORTER_OTLP_HEADERS: "x-key=traces",
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "https://metrics.example/otlp",
        OTEL_EXPORTER_OTLP_METRICS_HEADERS: "x-tenant=a",
      },
      {
        metricExport: {
          url: "https://metrics.example/otlp",
          headers: { "x-tenant": "a" },
          everyMs: 60_000,
          serviceName: "model-gateway",
        },
      },
    ],
    [
      { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: "http://otel:4318/m", OTEL_METRICS_EXPORTER: "none" },
      { metricExport: undefined, tracing: undefined },
    ],
  ];
  for (const [environment, expected] of cases) {
    test(JSON.stringify(environment).replaceAll(/gateway_\w+/g, "a key"), () => {
      expect(read(environment)).toMatchObject(expected);
    });
  }
});

test("the sandbox searches and moderates on a trial install only, never next to a hosted provider", () => {
  const standsIn = (environment: Record<string, string>) => {
    const { usesSandboxFallbacks, moderationModel } = read(environment);
    return { usesSandboxFallbacks, moderationModel };
  };
  const onTrial = { usesSandboxFallbacks: true, moderationModel: "sandbox/moderation" };
  expect(standsIn({})).toEqual(onTrial);
  expect(standsIn({ VLLM_BASE_URL: "http://127.0.0.1:8000/v1" })).toEqual(onTrial);
  expect(standsIn({ OPENAI_API_KEY: "sk-1" })).toEqual({
    usesSandboxFallbacks: false,
    moderationModel: undefined,
  });
});

describe("what is set without effect is told", () => {
  test("a misspelled setting, and an option of a service that is not in use", () => {
    const { warnings } = read({
      GATEWAY_MASTERKEY: "x",
      STRIPE_WEBHOOK_SECRET: "whsec_1",
      S3_ENDPOINT: "http://minio:9000",
      GATEWAY_SEARCH_API_KEY: "k",
    });
    expect(warnings).toEqual([
      "GATEWAY_SEARCH_API_KEY is ignored: GATEWAY_SEARCH_BACKEND is not set",
      "STRIPE_WEBHOOK_SECRET is ignored: STRIPE_SECRET_KEY is not set",
      "S3_ENDPOINT is ignored: S3_BUCKET is not set",
      "GATEWAY_MASTERKEY is ignored: there is no such setting; did you mean GATEWAY_MASTER_KEY?",
    ]);
  });
});

/** A server of one's own costs nothing. */
const LOCAL_SERVER = { OLLAMA_BASE_URL: "http://127.0.0.1:11434/v1" };

describe("the test processor takes payments", () => {
  const isOn = (environment: Record<string, string>) => read(environment).testPayments;

  test("by default only if nobody else reaches the gateway and no hosted provider is set", () => {
    const trials: Record<string, string>[] = [{}, { HOST: "localhost" }, { HOST: "::1" }];
    for (const environment of [...trials, LOCAL_SERVER]) {
      expect([environment, isOn(environment)]).toEqual([environment, true]);
    }
    const cases: Record<string, string>[] = [
      { HOST: "0.0.0.0" },
      { HOST: "10.0.0.5" },
      { OPENAI_API_KEY: "sk-1" },
      { ANTHROPIC_API_KEY: "sk-1" },
      { AWS_REGION: "eu-central-1", AWS_BEARER_TOKEN_BEDROCK: "b" },
      { GATEWAY_PUBLIC_URL: "https://gateway.example.com" },
      { GATEWAY_TRUSTED_PROXIES: "10.0.0.0/8" },
    ];
    for (const environment of cases) {
      expect([environment, isOn(environment)]).toEqual([environment, false]);
    }
  });

  test("if the setting says so, with a warning where it is not on by default, and never beside Stripe", () => {
    const warned = (environment: Record<string, string>) =>
      read(environment).warnings.filter((line) => line.startsWith("GATEWAY_TEST_PAYMENTS is true"));
    const stated = { GATEWAY_TEST_PAYMENTS: "true" };
    expect(isOn({ ...stated, HOST: "0.0.0.0" })).toBe(true);
    expect(warned({ ...stated, HOST: "0.0.0.0" })).toHaveLength(1);
    expect(warned({ ...stated, OPENAI_API_KEY: "sk-1" })).toHaveLength(1);
    expect(warned(stated)).toEqual([]);
    expect(warned({ HOST: "0.0.0.0" })).toEqual([]);
    expect(isOn({ GATEWAY_TEST_PAYMENTS: "false" })).toBe(false);
    expect(isOn({ ...stated, STRIPE_SECRET_KEY: "sk_test_1" })).toBe(false);
    expect(() => read({ GATEWAY_TEST_PAYMENTS: "perhaps" })).toThrow("GATEWAY_TEST_PAYMENTS");
  });
});
