import { describe, expect, test } from "bun:test";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readConfig } from "../../src/platform/config.ts";

const cwd = mkdtempSync(join(tmpdir(), "gateway-spelling-"));
const warningsOf = (environment: Record<string, string>) =>
  readConfig(environment, { cwd }).warnings;

describe("an unknown variable with the gateway's prefix", () => {
  test.each([
    ["GATEWAY_LOG_LEVELL", "LOG_LEVEL"],
    ["GATEWAY_DATABASE_URL", "DATABASE_URL"],
    ["GATEWAY_OPENAI_API_KEY", "OPENAI_API_KEY"],
    ["GATEWAY_LOG_FROMAT", "GATEWAY_LOG_FORMAT"],
    ["GATEWAY_MASTERKEY", "GATEWAY_MASTER_KEY"],
  ])("%s: the warning names %s", (name, meant) => {
    expect(warningsOf({ [name]: "x" })).toEqual([
      `${name} is ignored: there is no such setting; did you mean ${meant}?`,
    ]);
  });

  test("without a similar setting: the warning names none", () => {
    expect(warningsOf({ GATEWAY_ZZZZ: "x" })).toEqual([
      "GATEWAY_ZZZZ is ignored: there is no such setting",
    ]);
  });
});

describe("a variable without the prefix", () => {
  test.each([
    ["DATABSE_URL", "DATABASE_URL"],
    ["OPENAI_APIKEY", "OPENAI_API_KEY"],
    ["ANTHROPIC_API_KEYS", "ANTHROPIC_API_KEY"],
    ["REDIS_ULR", "REDIS_URL"],
    ["LOG_LEVLE", "LOG_LEVEL"],
    ["MASTER_KEY", undefined],
    ["DATADIR", undefined],
    ["DATBSE_ULR", undefined],
  ])("%s: the warning names %s", (name, meant) => {
    const warnings =
      meant === undefined ? [] : [`${name} is not a setting; did you mean ${meant}?`];
    expect(warningsOf({ [name]: "x" })).toEqual(warnings);
  });

  test("causes no warning if the similar setting is set", () => {
    expect(warningsOf({ OPENAI_APIKEY: "sk-1", OPENAI_API_KEY: "sk-2" })).toEqual([]);
  });

  test("causes no warning if the configuration file refers to it", () => {
    const file = join(cwd, "named.json");
    const providers = [{ id: "mine", type: "openai", api_key_env: "OPENAI_APIKEY" }];
    writeFileSync(file, JSON.stringify({ providers }));
    expect(warningsOf({ OPENAI_APIKEY: "sk-1", GATEWAY_CONFIG: file })).toEqual([]);
  });

  test("causes no warning if it is usual in shells, CI systems, clouds and other programs", () => {
    const names = `
      PATH HOME USER LOGNAME SHELL HOSTNAME HOSTTYPE LANGUAGE LC_ALL TERM_PROGRAM COLORTERM OLDPWD
      SSH_AUTH_SOCK SSH_CONNECTION XDG_DATA_DIRS XDG_DATA_HOME XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS
      HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy NODE_ENV NODE_OPTIONS NPM_CONFIG_CACHE BUN_INSTALL
      JAVA_HOME GOPATH VIRTUAL_ENV PYTHONPATH LD_LIBRARY_PATH DOCKER_HOST KUBECONFIG
      CI GITHUB_ACTIONS GITHUB_TOKEN GITHUB_API_URL GITHUB_REPOSITORY RUNNER_TEMP GITLAB_CI CI_SERVER_URL
      CI_JOB_TOKEN BUILDKITE_AGENT_ACCESS_TOKEN JENKINS_URL
      KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT_HTTPS POD_NAMESPACE
      AWS_DEFAULT_REGION AWS_PROFILE AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE AWS_ACCOUNT_ID
      GOOGLE_CLOUD_PROJECT GCLOUD_PROJECT GCE_METADATA_IP GOOGLE_API_KEY AZURE_SUBSCRIPTION_ID
      AZURE_FEDERATED_TOKEN_FILE DYNO PGHOST PGDATABASE POSTGRES_PASSWORD REDIS_HOST REDIS_PORT
      R2_BUCKET R2_ACCESS_KEY_ID EXA_API_KEY HF_TOKEN OPENAI_ORG_ID OPENAI_API_TYPE FLY_API_KEY
      OTEL_TRACES_EXPORTER OTEL_LOGS_EXPORTER OTEL_RESOURCE_ATTRIBUTES SENTRY_DSN STRIPE_API_KEY`
      .trim()
      .split(/\s+/);
    expect(names.length).toBeGreaterThanOrEqual(60);
    expect(warningsOf(Object.fromEntries(names.map((name) => [name, ""])))).toEqual([]);
  });
});
