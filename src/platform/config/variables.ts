import { PROVIDER_TYPES } from "./provider-types.ts";

/** The groups in which the reference lists the variables. */
export const VARIABLE_GROUPS = [
  "server",
  "data",
  "organizations",
  "calls",
  "telemetry",
  "sign-in",
  "payments",
  "webhooks",
  "tools",
  "hosted",
  "clouds",
  "self-hosted",
] as const;

export type VariableGroup = (typeof VARIABLE_GROUPS)[number];

export interface ConfigVariable {
  readonly name: string;
  readonly group: VariableGroup;
  /**
   * The text that is read if the variable is unset or empty. Null means that it then has no value.
   */
  readonly default: string | null;
  readonly meaning: string;
}

/** All variables except the variables of providers. Readers take their defaults from here. */
const SETTINGS = [
  {
    name: "PORT",
    group: "server",
    default: "3000",
    meaning: "port to listen on; 0 selects a free port",
  },
  { name: "HOST", group: "server", default: "127.0.0.1", meaning: "address to listen on" },
  {
    name: "GATEWAY_PUBLIC_URL",
    group: "server",
    default: null,
    meaning:
      "address at which callers reach the gateway, for the links in its answers; unset, `http://` and the `Host` of the caller's request",
  },
  {
    name: "GATEWAY_TRUSTED_PROXIES",
    group: "server",
    default: null,
    meaning:
      "comma-separated CIDRs of proxies whose `X-Forwarded-For` states the origin of an administrative call or of a sign-in to the dashboard; unset, the address of the connection is the origin",
  },
  {
    name: "GATEWAY_OIDC_ISSUER",
    group: "sign-in",
    default: null,
    meaning:
      "OpenID Connect issuer through which people sign in to the dashboard; unset, they sign in with keys only",
  },
  {
    name: "GATEWAY_OIDC_CLIENT_ID",
    group: "sign-in",
    default: null,
    meaning: "client id registered with the issuer",
  },
  {
    name: "GATEWAY_OIDC_CLIENT_SECRET",
    group: "sign-in",
    default: null,
    meaning: "client secret registered with the issuer",
  },
  {
    name: "GATEWAY_OIDC_ACCESS",
    group: "sign-in",
    default: null,
    meaning:
      "rules that allow people to sign in: comma-separated `claim=value:operator` or `claim=value:org_…` over claims of the ID token or of UserInfo; the first matching rule applies",
  },
  {
    name: "GATEWAY_OIDC_VERIFIED_EMAIL_ISSUERS",
    group: "sign-in",
    default: null,
    meaning:
      "comma-separated issuers whose `email` counts as verified although `email_verified` is absent",
  },
  {
    name: "GATEWAY_KEY_SIGN_IN",
    group: "sign-in",
    default: "true",
    meaning:
      "whether management keys and operator keys can sign in to the dashboard, beside accounts of people",
  },
  {
    name: "SMTP_URL",
    group: "sign-in",
    default: null,
    meaning:
      "mail server for invitations and new passwords, such as `smtps://user:password@mail.example.com`; unset, links are shown instead",
  },
  {
    name: "SMTP_FROM",
    group: "sign-in",
    default: null,
    meaning: "address of the sender; required with `SMTP_URL`",
  },
  {
    name: "GATEWAY_OIDC_NAME",
    group: "sign-in",
    default: "single sign-on",
    meaning: "text of the sign-in button after “Sign in with”",
  },
  {
    name: "GATEWAY_OIDC_SCOPES",
    group: "sign-in",
    default: "openid email profile",
    meaning: "scopes requested from the issuer",
  },
  {
    name: "GATEWAY_AUDIT_LOG_DAYS",
    group: "data",
    default: "400",
    meaning: "days after which entries of the audit log are deleted",
  },
  {
    name: "DATA_DIR",
    group: "data",
    default: ".data",
    meaning: "folder of the embedded Postgres, stored files and the generated master key",
  },
  {
    name: "DATABASE_URL",
    group: "data",
    default: null,
    meaning:
      "any Postgres from version 15, with `sslmode`, `sslrootcert`, `sslcert` and `sslkey` as libpq has them ([databases](../guides/operate/databases.md)); unset, an embedded one runs in `DATA_DIR/postgres`",
  },
  {
    name: "DATABASE_POOL_SIZE",
    group: "data",
    default: "10",
    meaning: "connections of one process to the database",
  },
  {
    name: "REDIS_URL",
    group: "data",
    default: null,
    meaning:
      "URL of Redis; set, this process is one of several instances; unset, it is the only one",
  },
  {
    name: "GATEWAY_CONFIG",
    group: "calls",
    default: null,
    meaning: "file of providers and models; unset, `gateway.config.json` if it exists",
  },
  {
    name: "GATEWAY_MANAGEMENT_KEY",
    group: "organizations",
    default: null,
    meaning:
      "first management key of the default organization, used at the first start; unset, one is generated",
  },
  {
    name: "GATEWAY_SECRET_KEY",
    group: "organizations",
    default: null,
    meaning:
      "first secret key of the default organization, used at the first start; unset, one is generated",
  },
  {
    name: "GATEWAY_OPERATOR_KEY",
    group: "organizations",
    default: null,
    meaning:
      "operator key (`gateway_op_…`) for `/v1/admin`, added at each start unless it exists; a different value adds another key, and `keys revoke` revokes one",
  },
  {
    name: "GATEWAY_MASTER_KEY",
    group: "data",
    default: null,
    meaning:
      "32 bytes in base64 that encrypt webhook secrets and provider keys at rest; required with `DATABASE_URL`, otherwise generated into `DATA_DIR`",
  },
  {
    name: "GATEWAY_MASTER_KEY_PREVIOUS",
    group: "data",
    default: null,
    meaning:
      "previous master key, while it is being replaced: values that it encrypted can still be decrypted",
  },
  {
    name: "GATEWAY_STARTING_CREDIT_USD",
    group: "organizations",
    default: "10",
    meaning: "credit of a new organization; 0 gives none",
  },
  {
    name: "GATEWAY_PLAN",
    group: "organizations",
    default: "free",
    meaning:
      "plan of a new organization: `free`, `pro`, `byok` or `enterprise` (no fee, no credit limit)",
  },
  {
    name: "GATEWAY_FILE_SEARCH_COST_USD",
    group: "tools",
    default: "0",
    meaning:
      "price of one search in vector stores that the gateway runs for a model, before the fee",
  },
  {
    name: "GATEWAY_COMPLETION_SUCCESS_SAMPLE",
    group: "webhooks",
    default: "0.1",
    meaning: "share of successful completions that emit `completion.success`, 0 to 1",
  },
  {
    name: "GATEWAY_WEBHOOK_RETRY_DELAYS",
    group: "webhooks",
    default: "10,60,600,3600,21600,86400",
    meaning: "seconds to wait after each failed delivery attempt",
  },
  {
    name: "GATEWAY_WEBHOOK_ALLOW_HTTP",
    group: "webhooks",
    default: "false",
    meaning: "accept `http://` for URLs of webhooks and of images at providers, for development",
  },
  {
    name: "GATEWAY_EGRESS_ALLOW",
    group: "webhooks",
    default: null,
    meaning:
      "comma-separated CIDRs that URLs of users, and of images at providers, may reach although they are not public",
  },
  {
    name: "GATEWAY_MCP_SERVERS",
    group: "tools",
    default: null,
    meaning:
      "comma-separated hosts of MCP servers that the gateway calls for the tool `mcp`; `*.example.com` allows all hosts below it, `*` all hosts with public addresses; unset, none",
  },
  {
    name: "GATEWAY_UPSTREAM_CONNECT_TIMEOUT_MS",
    group: "calls",
    default: "5000",
    meaning: "time until a connection to a provider is open, including TLS and a proxy's tunnel",
  },
  {
    name: "GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS",
    group: "calls",
    default: "120000",
    meaning: "time until the first event of a stream",
  },
  {
    name: "GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS",
    group: "calls",
    default: "120000",
    meaning: "time between two events of a stream",
  },
  {
    name: "GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS",
    group: "calls",
    default: "600000",
    meaning: "time until an answer is complete",
  },
  {
    name: "GATEWAY_UPSTREAM_FULL_TIMEOUT_MS",
    group: "calls",
    default: "10000",
    meaning:
      "time that a call waits if every endpoint is at its `max_parallel_requests`; 0: calls do not wait",
  },
  {
    name: "GATEWAY_UPLOAD_MIN_BYTES_PER_SECOND",
    group: "server",
    default: "32768",
    meaning:
      "minimum rate of an upload; the gateway aborts an upload that is slower for longer than a minute",
  },
  {
    name: "GATEWAY_CORS_ORIGINS",
    group: "server",
    default: null,
    meaning: "comma-separated origins from which browsers may call, or `*`; unset allows none",
  },
  {
    name: "GATEWAY_METRICS_TOKEN",
    group: "telemetry",
    default: null,
    meaning:
      "bearer token of `/metrics`; unset, `/metrics` answers only if `HOST` is a loopback address, only to a loopback `Host` header, and not to requests that a proxy forwarded (`X-Forwarded-*`, `Forwarded`, `Via`, `X-Real-IP`)",
  },
  {
    name: "GATEWAY_MODEL_LISTS_SECONDS",
    group: "calls",
    default: "3600",
    meaning: "time between two readings of the providers' model lists; 0 reads none",
  },
  {
    name: "GATEWAY_HEALTH_CHECK_SECONDS",
    group: "calls",
    default: "10",
    meaning: "time between two health checks of self-hosted providers; 0 checks none",
  },
  {
    name: "GATEWAY_CACHE_MAX_ENTRIES",
    group: "calls",
    default: "10000",
    meaning: "maximum number of answers in the response cache of each organization",
  },
  {
    name: "GATEWAY_CACHE_MAX_BYTES",
    group: "calls",
    default: "268435456",
    meaning: "maximum bytes of the response cache of each organization",
  },
  {
    name: "GATEWAY_VECTOR_STORE_MODEL",
    group: "tools",
    default: null,
    meaning:
      "embedding model of vector stores, such as `openai/text-embedding-3-small` (`sandbox/embed` for trials), charged to the keys that add files and search; unset, they are searched by their words only",
  },
  {
    name: "GATEWAY_MODERATION_MODEL",
    group: "tools",
    default: null,
    meaning:
      "provider and model that decide for guardrails of type `moderation`, such as `openai/omni-moderation-latest`; the operator pays for it. The provider must have OpenAI's interface, with `/moderations`; unset, `sandbox/moderation` decides, which recognizes only the names of categories; if a hosted provider is configured, or the sandbox is off, such guardrails cannot be created",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER",
    group: "tools",
    default: "false",
    meaning:
      "run the Python that models write for the tool `code_interpreter`, in locked-down processes (Linux only)",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_PROCESSES",
    group: "tools",
    default: "4",
    meaning:
      "maximum number of responses with a Python interpreter at the same time; others wait 20 seconds",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_SECONDS",
    group: "tools",
    default: "30",
    meaning: "maximum time of one call",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_MEMORY_MB",
    group: "tools",
    default: "512",
    meaning: "memory of the programs of one interpreter; its process uses up to 384 MB more",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_WHEELS",
    group: "tools",
    default: null,
    meaning:
      "folder of wheels (`.whl`, pure or for Pyodide) that Python has in addition to its standard library",
  },
  {
    name: "GATEWAY_DEBUG_ECHO",
    group: "calls",
    default: "false",
    meaning:
      "chats with `debug: {echo_upstream_body: true}` show their caller the body that was sent to the provider",
  },
  {
    name: "GATEWAY_KEEPALIVE_MS",
    group: "server",
    default: "15000",
    meaning: "silence in a stream after which a comment is sent",
  },
  {
    name: "GATEWAY_CONNECTION_IDLE_SECONDS",
    group: "server",
    default: "30",
    meaning:
      "seconds without traffic after which a client's connection is closed if it does not wait for an answer, 1 to 255; set it above the idle timeout of a load balancer in front",
  },
  {
    name: "GATEWAY_MAX_BACKGROUND_RESPONSES",
    group: "organizations",
    default: "100",
    meaning:
      "maximum number of running background responses of an organization, over all instances",
  },
  {
    name: "GATEWAY_SHUTDOWN_GRACE_MS",
    group: "server",
    default: "25000",
    meaning: "time that running requests have to finish after SIGTERM",
  },
  {
    name: "STRIPE_SECRET_KEY",
    group: "payments",
    default: null,
    meaning:
      "accepts payments through Stripe; unset, no payments are accepted unless `GATEWAY_TEST_PAYMENTS` is true",
  },
  {
    name: "GATEWAY_TEST_PAYMENTS",
    group: "payments",
    default: null,
    meaning:
      "without `STRIPE_SECRET_KEY`, true lets the test processor accept payments: anyone with the scope `billing:write` can then credit an organization for nothing; false accepts no payments; unset, true only if `HOST` is a loopback address and neither a hosted provider, `GATEWAY_PUBLIC_URL` nor `GATEWAY_TRUSTED_PROXIES` is set",
  },
  {
    name: "STRIPE_WEBHOOK_SECRET",
    group: "payments",
    default: null,
    meaning:
      "verifies Stripe's webhooks at `/v1/billing/stripe/webhook`; unset, that route is 404; with `STRIPE_SECRET_KEY` it must not be empty",
  },
  {
    name: "STRIPE_PRO_PRICE_ID",
    group: "payments",
    default: null,
    meaning:
      "recurring price at Stripe (`price_…`) of the plan `pro`; unset, with `STRIPE_SECRET_KEY`, only operators can give organizations this plan",
  },
  {
    name: "GATEWAY_PRO_PRICE_USD",
    group: "payments",
    default: "20",
    meaning: "monthly price of the plan `pro` at the test processor",
  },
  {
    name: "STRIPE_API_BASE",
    group: "payments",
    default: "https://api.stripe.com",
    meaning: "address of Stripe's API",
  },
  {
    name: "S3_BUCKET",
    group: "data",
    default: null,
    meaning: "bucket for stored files; unset, they are stored in `DATA_DIR/files`",
  },
  {
    name: "S3_ENDPOINT",
    group: "data",
    default: null,
    meaning: "address of an S3-compatible store; unset, that of AWS",
  },
  { name: "S3_ACCESS_KEY_ID", group: "data", default: null, meaning: "credentials of the bucket" },
  {
    name: "S3_SECRET_ACCESS_KEY",
    group: "data",
    default: null,
    meaning: "credentials of the bucket",
  },
  { name: "S3_REGION", group: "data", default: null, meaning: "region of the bucket" },
  {
    name: "GATEWAY_SEARCH_BACKEND",
    group: "tools",
    default: null,
    meaning:
      "searches the web for models: `searxng`, `brave`, `tavily` or `exa`; unset, the sandbox answers with made-up results; if a hosted provider is configured, or the sandbox is off, requests with a search are 400",
  },
  {
    name: "GATEWAY_SEARCH_URL",
    group: "tools",
    default: null,
    meaning: "address of the search backend; unset, that of its vendor; required for SearXNG",
  },
  {
    name: "GATEWAY_SEARCH_API_KEY",
    group: "tools",
    default: null,
    meaning: "key of the search backend; optional for SearXNG, which gets it as a bearer token",
  },
  {
    name: "GATEWAY_WEB_SEARCH_COST_USD",
    group: "tools",
    default: null,
    meaning:
      "price of one search, before the fee; unset, the vendor's published price: Brave 0.005, Tavily 0.008, Exa 0.007, SearXNG 0",
  },
  {
    name: "LOG_LEVEL",
    group: "telemetry",
    default: "info",
    meaning:
      "`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`; requests for `/healthz`, `/readyz` and `/metrics` are logged at `debug`",
  },
  {
    name: "GATEWAY_LOG_FORMAT",
    group: "telemetry",
    default: "auto",
    meaning:
      "`json` or `text`; `auto` is text on a terminal and JSON otherwise. Text has colors on a terminal, unless `NO_COLOR` is set",
  },
  {
    name: "OTEL_EXPORTER_OTLP_ENDPOINT",
    group: "telemetry",
    default: null,
    meaning:
      "collector to which traces are sent by OTLP over HTTP, and metrics if `OTEL_METRICS_EXPORTER` says so; unset, nothing is traced",
  },
  {
    name: "OTEL_EXPORTER_OTLP_HEADERS",
    group: "telemetry",
    default: null,
    meaning: "headers of each export, such as a key: comma-separated `name=value`",
  },
  {
    name: "OTEL_TRACES_SAMPLER_ARG",
    group: "telemetry",
    default: "1",
    meaning:
      "share of the requests that are traced, 0 to 1; the `traceparent` of a caller takes precedence",
  },
  {
    name: "OTEL_METRICS_EXPORTER",
    group: "telemetry",
    default: null,
    meaning:
      "`otlp`: the metrics of `/metrics` are sent to the collector; `none`: they are not; unset, they are sent if `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` is set",
  },
  {
    name: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    group: "telemetry",
    default: null,
    meaning:
      "full address to which metrics are sent; unset, `/v1/metrics` of `OTEL_EXPORTER_OTLP_ENDPOINT`",
  },
  {
    name: "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    group: "telemetry",
    default: null,
    meaning:
      "headers of the exports of metrics; a separate address does not get those of `OTEL_EXPORTER_OTLP_HEADERS`",
  },
  {
    name: "OTEL_METRIC_EXPORT_INTERVAL",
    group: "telemetry",
    default: "60000",
    meaning: "milliseconds between exports of metrics",
  },
  {
    name: "OTEL_SERVICE_NAME",
    group: "telemetry",
    default: "model-gateway",
    meaning: "name of this service in traces and metrics",
  },
  {
    name: "GATEWAY_TRACE_CONTENT",
    group: "telemetry",
    default: "false",
    meaning: "include the prompts of requests in traces",
  },
] as const satisfies readonly ConfigVariable[];

export type SettingName = (typeof SETTINGS)[number]["name"];

const DEFAULTS = new Map<string, string | null>(
  SETTINGS.map((variable) => [variable.name, variable.default]),
);

/** Returns the default of a variable, or undefined if it has none. */
export function defaultText(name: SettingName): string | undefined {
  return DEFAULTS.get(name) ?? undefined;
}

function providerVariables(): ConfigVariable[] {
  return Object.values(PROVIDER_TYPES).flatMap((type) => {
    if (type.environmentPrefix === undefined) return [];
    const group = type.isSelfHosted ? "self-hosted" : "hosted";
    return [
      {
        name: `${type.environmentPrefix}_API_KEY`,
        group,
        default: null,
        meaning: type.hostedBaseUrl
          ? `key of ${type.displayName}; alone, it enables ${type.hostedBaseUrl}`
          : type.isSelfHosted
            ? `key of ${type.displayName}, if it requires one; set, it enables ${type.displayName} at its default address`
            : `enables ${type.displayName} with its built-in models`,
      },
      {
        name: `${type.environmentPrefix}_BASE_URL`,
        group,
        default: type.defaultBaseUrl ?? null,
        meaning: `address of ${type.displayName}; set, it enables ${type.displayName} even without a key`,
      },
    ];
  });
}

export const DEFAULT_VERTEX_LOCATION = "global";

/**
 * Settings of Vertex AI, Azure and Bedrock in addition to key and address. Most have the names that
 * the clouds' own tools read.
 */
const CLOUD_VARIABLES = [
  {
    name: "VERTEX_PROJECT",
    group: "clouds",
    default: null,
    meaning: "project of Vertex AI; if set, enables Vertex AI",
  },
  {
    name: "VERTEX_LOCATION",
    group: "clouds",
    default: DEFAULT_VERTEX_LOCATION,
    meaning: "location of Vertex AI's models: a region, `us`, `eu` or `global`",
  },
  {
    name: "GOOGLE_APPLICATION_CREDENTIALS",
    group: "clouds",
    default: null,
    meaning:
      "JSON of a service account for Vertex AI, or the file that contains it; unset, without `VERTEX_API_KEY`, the machine's metadata server issues tokens",
  },
  {
    name: "GCE_METADATA_HOST",
    group: "clouds",
    default: "metadata.google.internal",
    meaning: "host of that metadata server",
  },
  {
    name: "AZURE_API_VERSION",
    group: "clouds",
    default: null,
    meaning:
      "version of Azure's interface, such as `2024-10-21`, for addresses that name the deployment",
  },
  {
    name: "AZURE_TENANT_ID",
    group: "clouds",
    default: null,
    meaning: "tenant of Entra ID, which issues tokens for Azure OpenAI if no key is set",
  },
  {
    name: "AZURE_CLIENT_ID",
    group: "clouds",
    default: null,
    meaning: "application in that tenant",
  },
  {
    name: "AZURE_CLIENT_SECRET",
    group: "clouds",
    default: null,
    meaning: "secret of that application",
  },
  {
    name: "AZURE_AUTHORITY_HOST",
    group: "clouds",
    default: "https://login.microsoftonline.com",
    meaning: "address of Entra ID",
  },
  {
    name: "AWS_REGION",
    group: "clouds",
    default: null,
    meaning:
      "region of Amazon Bedrock, which determines its address; if unset, `AWS_DEFAULT_REGION` is used",
  },
  {
    name: "AWS_BEARER_TOKEN_BEDROCK",
    group: "clouds",
    default: null,
    meaning: "API key of Bedrock; enables Amazon Bedrock if a region is set",
  },
  {
    name: "AWS_ACCESS_KEY_ID",
    group: "clouds",
    default: null,
    meaning: "enables Amazon Bedrock together with `AWS_SECRET_ACCESS_KEY` and a region",
  },
  {
    name: "AWS_SECRET_ACCESS_KEY",
    group: "clouds",
    default: null,
    meaning: "secret of the access key",
  },
  {
    name: "AWS_SESSION_TOKEN",
    group: "clouds",
    default: null,
    meaning: "session of a temporary access key",
  },
] as const satisfies readonly ConfigVariable[];

export type CloudVariable = (typeof CLOUD_VARIABLES)[number]["name"];

/** All variables that the gateway reads, for its documentation. */
export const CONFIG_VARIABLES: readonly ConfigVariable[] = [
  ...SETTINGS,
  ...providerVariables(),
  ...CLOUD_VARIABLES,
];

/** Returns the table of a group's variables in Markdown, as in docs/reference/configuration*.md. */
export function variablesTable(group: VariableGroup): string {
  const rows = CONFIG_VARIABLES.filter((variable) => variable.group === group).map(
    ({ name, default: text, meaning }) =>
      `| \`${name}\` | ${text === null ? "unset" : `\`${text}\``} | ${meaning} |`,
  );
  return ["| variable | default | meaning |", "|---|---|---|", ...rows].join("\n");
}
