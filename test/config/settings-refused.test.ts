import { describe, expect, test } from "bun:test";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { ConfigError } from "../../src/platform/config/config-error.ts";
import { CONFIG_VARIABLES } from "../../src/platform/config/variables.ts";
import { readConfig } from "../../src/platform/config.ts";

const cwd = mkdtempSync(join(tmpdir(), "gateway-config-"));
const MASTER_KEY = Buffer.from(new Uint8Array(32).fill(7)).toString("base64");
const SECRET_KEY = generateApiKey("secret").key;

function refusal(environment: Record<string, string | undefined>): string {
  try {
    readConfig(environment, { cwd });
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error(`accepted: ${JSON.stringify(environment)}`);
}

const NOT_WHOLE = [
  "abc",
  "-1",
  "1.5",
  "3e3",
  " 5",
  "5 ",
  "0x10",
  "+5",
  "05",
  "1_000",
  "٣",
  "1e400",
];
const WHOLE_NUMBERS = [
  "PORT",
  "DATABASE_POOL_SIZE",
  "GATEWAY_UPSTREAM_CONNECT_TIMEOUT_MS",
  "GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS",
  "GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS",
  "GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS",
  "GATEWAY_UPLOAD_MIN_BYTES_PER_SECOND",
  "GATEWAY_KEEPALIVE_MS",
  "GATEWAY_SHUTDOWN_GRACE_MS",
];
const BAD_CIDRS = [
  "10.0.0.0",
  "10.0.0.0/33",
  "::/129",
  "10.0.0/8",
  "a/8",
  "10.0.0.0/8/9",
  "10.0.0.0/08",
];

describe("each variable refuses anything else in one line with its name, its value and what is accepted", () => {
  const cases: Record<string, string[]> = {
    ...Object.fromEntries(WHOLE_NUMBERS.map((name) => [name, NOT_WHOLE])),
    HOST: ["a b", "http://x", "a/b"],
    GATEWAY_PUBLIC_URL: ["gateway.example.com", "ftp://a", "https://a?b", "https://a#b", "//a"],
    DATABASE_URL: ["localhost", "mysql://db/gateway"],
    REDIS_URL: ["cache:6379", "http://cache", "redis://cache/rates", "redis://cache/1/2"],
    GATEWAY_STARTING_CREDIT_USD: ["-1", "1e3", "free", "0.0000000001", "1000001", "1,5", ".5"],
    GATEWAY_PLAN: ["Free", "Enterprise", "__proto__"],
    GATEWAY_COMPLETION_SUCCESS_SAMPLE: ["1.1", "-0.1", "10%", "1e-1", "NaN"],
    GATEWAY_WEBHOOK_RETRY_DELAYS: ["a", "1;2", "-1", "1,,2", "1e3", "604801", "1,".repeat(20) + 1],
    GATEWAY_WEBHOOK_ALLOW_HTTP: ["yes", "TRUE", "on", "2", "toString"],
    GATEWAY_TRUSTED_PROXIES: ["proxy.example", "10.0.0.1"],
    GATEWAY_AUDIT_LOG_DAYS: ["0", "-1", "a year"],
    GATEWAY_OIDC_ISSUER: ["ftp://login.example", "http://login.example"],
    GATEWAY_OIDC_ACCESS: ["groups", "groups=a:admin", "=a:operator"],
    GATEWAY_EGRESS_ALLOW: [...BAD_CIDRS, "10.0.0.0/8,", "fe80::1%eth0/64"],
    GATEWAY_CORS_ORIGINS: ["example.com", "https://a.com/", "https://a.com/x", "*,*", "null"],
    STRIPE_API_BASE: ["stripe", "ftp://a"],
    S3_BUCKET: ["A", "a_b", "-ab"],
    S3_ENDPOINT: ["minio:9000", "file:///etc"],
    S3_REGION: ["eu central"],
    GATEWAY_SEARCH_BACKEND: ["google", "Exa", "__proto__"],
    GATEWAY_SEARCH_URL: ["searxng:8080", "ftp://a", "https://user:password@a"],
    GATEWAY_WEB_SEARCH_COST_USD: ["-1", "1e-3", "10.1", "0.0000000001"],
    LOG_LEVEL: ["verbose", "INFO"],
    OTEL_EXPORTER_OTLP_ENDPOINT: ["otel:4318", "grpc://otel"],
    OTEL_EXPORTER_OTLP_HEADERS: ["key", "=value", "a b=c", "key=%", "key=%0A"],
    OTEL_TRACES_SAMPLER_ARG: ["-1", "1.1", "always_on"],
    OTEL_METRICS_EXPORTER: ["otlp", "console", "prometheus"],
    OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: ["otel:4318", "grpc://otel"],
    OTEL_EXPORTER_OTLP_METRICS_HEADERS: ["key", "key=%0A"],
    GATEWAY_CONNECTION_IDLE_SECONDS: ["0", "256", "1.5"],
    OTEL_METRIC_EXPORT_INTERVAL: ["0", "999", "1.5", "3600001"],
    GATEWAY_TRACE_CONTENT: ["yes"],
    OPENAI_BASE_URL: ["api.openai.com", "ftp://api", "http://a b", "http://a?x=1", "http://a#x"],
    GATEWAY_CONFIG: ["missing.json", "/nonexistent/gateway.json"],
  };
  for (const [name, values] of Object.entries(cases)) {
    test(name, () => {
      for (const value of values) {
        const line = refusal({ [name]: value, GATEWAY_MASTER_KEY: MASTER_KEY });
        expect(line).toStartWith(`${name} is `);
        expect(line).toContain(", but must be ");
        expect(line).not.toContain("\n");
      }
    });
  }

  test("a search backend without its key or address names what is missing", () => {
    expect(refusal({ GATEWAY_SEARCH_BACKEND: "brave" })).toBe(
      "GATEWAY_SEARCH_API_KEY is not set, but must be set together with GATEWAY_SEARCH_BACKEND=brave",
    );
    const withKey = { GATEWAY_SEARCH_BACKEND: "searxng", GATEWAY_SEARCH_API_KEY: "a" };
    expect(refusal(withKey)).toStartWith("GATEWAY_SEARCH_URL is not set");
    const secret = { GATEWAY_SEARCH_BACKEND: "exa", GATEWAY_SEARCH_API_KEY: "hunter2\n" };
    expect(refusal(secret)).not.toContain("hunter2");
  });

  test("the value is shown as it was given", () => {
    expect(refusal({ PORT: "70000" })).toBe(
      'PORT is "70000", but must be a whole number from 0 to 65535',
    );
    expect(refusal({ LOG_LEVEL: "a\nb" })).toContain('LOG_LEVEL is "a\\nb", but');
  });

  test("a very long value is shown shortened", () => {
    expect(refusal({ PORT: "9".repeat(100_000) }).length).toBeLessThan(300);
  });
});

describe("secrets", () => {
  const HIDDEN = "hunter2";
  const cases: Record<string, Record<string, string>> = {
    "a malformed management key": { GATEWAY_MANAGEMENT_KEY: `gateway_mgmt_${HIDDEN}` },
    "a malformed operator key": { GATEWAY_OPERATOR_KEY: `gateway_op_${HIDDEN}` },
    "a management key in place of an operator key": {
      GATEWAY_OPERATOR_KEY: generateApiKey("management").key,
    },
    "a secret key in place of a management key": {
      GATEWAY_MANAGEMENT_KEY: generateApiKey("secret").key,
    },
    "a management key in place of a secret key": {
      GATEWAY_SECRET_KEY: generateApiKey("management").key,
    },
    "a secret key with one wrong character": {
      GATEWAY_SECRET_KEY: `${SECRET_KEY.slice(0, -1)}${SECRET_KEY.endsWith("A") ? "B" : "A"}`,
    },
    "a master key of 31 bytes": { GATEWAY_MASTER_KEY: Buffer.alloc(31).toString("base64") },
    "a master key that is no base64": { GATEWAY_MASTER_KEY: `${HIDDEN}!`.padEnd(44, "A") },
    "a master key without its padding": { GATEWAY_MASTER_KEY: MASTER_KEY.replace("=", "") },
    "a metrics token with a line break": { GATEWAY_METRICS_TOKEN: `${HIDDEN}\n` },
    "a provider key with a space": { OPENAI_API_KEY: `${HIDDEN} x` },
    "a Stripe key with a space": { STRIPE_SECRET_KEY: `${HIDDEN} x` },
    "an S3 secret with a space": { S3_SECRET_ACCESS_KEY: `${HIDDEN} x` },
    "a password in a database URL": { DATABASE_URL: `mysql://root:${HIDDEN}@db/x` },
    "a password in a query": { DATABASE_URL: `mysql://db/x?password=${HIDDEN}` },
    "a password with unescaped characters": { DATABASE_URL: `mysql://root:1/${HIDDEN}@db/x` },
    "a database URL without a scheme": { DATABASE_URL: `root:${HIDDEN}@db/x` },
    "a connection string": { DATABASE_URL: `host=db password=${HIDDEN}` },
    "a password in a Redis URL": { REDIS_URL: `http://:${HIDDEN}@cache` },
    "a password in a provider's address": { OPENAI_BASE_URL: `http://me:${HIDDEN}@proxy/v1` },
  };
  for (const [title, environment] of Object.entries(cases)) {
    test(`${title} stops the start and is not shown`, () => {
      const line = refusal(environment);
      expect(line).toStartWith(Object.keys(environment)[0] ?? "");
      for (const value of [HIDDEN, ...Object.values(environment)])
        expect(line).not.toContain(value);
    });
  }

  test("a database of one's own demands a master key", () => {
    expect(refusal({ DATABASE_URL: "postgres://db/gateway" })).toStartWith(
      "GATEWAY_MASTER_KEY is not set, but must be 32 bytes in base64",
    );
  });

  test("half of the S3 credentials is refused", () => {
    expect(refusal({ S3_BUCKET: "files", S3_ACCESS_KEY_ID: "id" })).toStartWith(
      "S3_SECRET_ACCESS_KEY is not set",
    );
    expect(refusal({ S3_BUCKET: "files", S3_SECRET_ACCESS_KEY: "secret" })).toStartWith(
      "S3_ACCESS_KEY_ID is not set",
    );
  });
});

test("any text in any variable is either accepted or refused in one line, never a crash", () => {
  const names = CONFIG_VARIABLES.map(({ name }) => name);
  fc.assert(
    fc.property(fc.constantFrom(...names), fc.string({ unit: "binary" }), (name, value) => {
      fc.pre(!value.includes("\u0000"));
      try {
        readConfig({ [name]: value }, { cwd });
      } catch (error) {
        expect(error).toBeInstanceOf(ConfigError);
        expect(String(error)).not.toContain("\n");
      }
    }),
    { numRuns: 1000 },
  );
});

test("all settings that are wrong are told at once, a line for each, and no secret", () => {
  const environment = {
    PORT: "many",
    LOG_LEVEL: "loud",
    GATEWAY_CORS_ORIGINS: "example.com",
    GATEWAY_WEBHOOK_RETRY_DELAYS: "a",
    GATEWAY_MASTER_KEY: "hunter2",
    GATEWAY_SECRET_KEY: "hunter2",
    S3_BUCKET: "files",
    S3_ACCESS_KEY_ID: "hunter 2",
    MISTRAL_BASE_URL: "nowhere",
    AZURE_API_KEY: "k",
  };
  const lines = refusal(environment).split("\n");
  expect(lines.map((line) => line.split(" ")[0]!).toSorted()).toEqual([
    "AZURE_BASE_URL",
    "GATEWAY_CORS_ORIGINS",
    "GATEWAY_MASTER_KEY",
    "GATEWAY_SECRET_KEY",
    "GATEWAY_WEBHOOK_RETRY_DELAYS",
    "LOG_LEVEL",
    "MISTRAL_BASE_URL",
    "PORT",
    "S3_ACCESS_KEY_ID",
    "S3_SECRET_ACCESS_KEY",
  ]);
  expect(lines.join()).not.toContain("hunter");
});
