import { PROVIDER_TYPES } from "./provider-types.ts";

export interface ConfigVariable {
  readonly name: string;
  /** The text that is read when the variable is unset or empty; null: it then has no value. */
  readonly default: string | null;
  readonly meaning: string;
}

/** Every variable but the providers'. The defaults here are the ones in force: readers take them from here. */
const SETTINGS = [
  { name: "PORT", default: "3000", meaning: "port to listen on; 0 takes a free one" },
  { name: "HOST", default: "127.0.0.1", meaning: "address to listen on" },
  {
    name: "GATEWAY_PUBLIC_URL",
    default: null,
    meaning:
      "address by which callers reach the gateway, for the links that it makes; unset, `http://` and the `Host` that the caller names",
  },
  {
    name: "GATEWAY_TRUSTED_PROXIES",
    default: null,
    meaning:
      "comma-separated CIDRs of proxies whose `X-Forwarded-For` says where an administrative call or an attempt to sign in to the dashboard comes from; unset, the connection says it",
  },
  {
    name: "GATEWAY_OIDC_ISSUER",
    default: null,
    meaning:
      "OpenID Connect issuer through which people sign in to the dashboard; unset: by keys alone",
  },
  { name: "GATEWAY_OIDC_CLIENT_ID", default: null, meaning: "the gateway's client id there" },
  { name: "GATEWAY_OIDC_CLIENT_SECRET", default: null, meaning: "and its secret" },
  {
    name: "GATEWAY_OIDC_ACCESS",
    default: null,
    meaning:
      "who may sign in, and as what: comma-separated `claim=value:operator` or `claim=value:org_…` over claims of the ID token or of UserInfo; the first that fits counts",
  },
  {
    name: "GATEWAY_OIDC_VERIFIED_EMAIL_ISSUERS",
    default: null,
    meaning:
      "comma-separated issuers that vouch for their addresses: `email` counts there although `email_verified` is absent",
  },
  {
    name: "GATEWAY_OIDC_NAME",
    default: "single sign-on",
    meaning: "what the button says behind “Sign in with”",
  },
  {
    name: "GATEWAY_OIDC_SCOPES",
    default: "openid email profile",
    meaning: "scopes that are asked for there",
  },
  {
    name: "GATEWAY_AUDIT_LOG_DAYS",
    default: "400",
    meaning: "days for which entries of the audit log are kept",
  },
  {
    name: "DATA_DIR",
    default: ".data",
    meaning: "folder of the embedded Postgres, stored files and the generated master key",
  },
  {
    name: "DATABASE_URL",
    default: null,
    meaning:
      "any Postgres from version 15, with `sslmode`, `sslrootcert`, `sslcert` and `sslkey` as libpq has them ([operations](operations.md#your-own-postgres)); unset, an embedded one runs in `DATA_DIR/postgres`",
  },
  {
    name: "DATABASE_POOL_SIZE",
    default: "10",
    meaning: "connections of one process to the database",
  },
  {
    name: "REDIS_URL",
    default: null,
    meaning: "set: this process is one of several instances; unset: it is the only one",
  },
  {
    name: "GATEWAY_CONFIG",
    default: null,
    meaning: "file of providers and models; unset, `gateway.config.json` if there is one",
  },
  {
    name: "GATEWAY_MANAGEMENT_KEY",
    default: null,
    meaning:
      "first management key of the default organization, used at the first start; unset, one is generated",
  },
  {
    name: "GATEWAY_SECRET_KEY",
    default: null,
    meaning:
      "first secret key of the default organization, used at the first start; unset, one is generated",
  },
  {
    name: "GATEWAY_OPERATOR_KEY",
    default: null,
    meaning:
      "an operator key (`gateway_op_…`) for `/v1/admin`, added at each start unless it is known; another value adds another key, `keys revoke` ends one",
  },
  {
    name: "GATEWAY_MASTER_KEY",
    default: null,
    meaning:
      "32 bytes in base64 that encrypt webhook secrets and provider keys at rest; required with `DATABASE_URL`, otherwise generated into `DATA_DIR`",
  },
  {
    name: "GATEWAY_MASTER_KEY_PREVIOUS",
    default: null,
    meaning:
      "the master key before, while it is being replaced: what it sealed can still be opened",
  },
  {
    name: "GATEWAY_STARTING_CREDIT_USD",
    default: "10",
    meaning: "credit of a new organization; 0 gives none",
  },
  {
    name: "GATEWAY_PLAN",
    default: "free",
    meaning:
      "plan of a new organization: `free`, `pro`, `byok` or `enterprise` (fee 0, credit without limit)",
  },
  {
    name: "GATEWAY_FILE_SEARCH_COST_USD",
    default: "0",
    meaning:
      "what a search in vector stores costs that the gateway makes for a model, before the fee",
  },
  {
    name: "GATEWAY_COMPLETION_SUCCESS_SAMPLE",
    default: "0.1",
    meaning: "share of successful completions that emit `completion.success`, 0 to 1",
  },
  {
    name: "GATEWAY_WEBHOOK_RETRY_DELAYS",
    default: "10,60,600,3600,21600,86400",
    meaning: "seconds to wait after each failed delivery attempt",
  },
  {
    name: "GATEWAY_WEBHOOK_ALLOW_HTTP",
    default: "false",
    meaning:
      "accept `http://` webhook URLs, and such addresses of images at providers, for development",
  },
  {
    name: "GATEWAY_EGRESS_ALLOW",
    default: null,
    meaning:
      "comma-separated CIDRs that URLs of users, and of images at providers, may reach although not public",
  },
  {
    name: "GATEWAY_MCP_SERVERS",
    default: null,
    meaning:
      "comma-separated hosts of MCP servers that the gateway calls for the tool `mcp`; `*.example.com` stands for all below it, `*` for all with public addresses; unset, none",
  },
  {
    name: "GATEWAY_UPSTREAM_CONNECT_TIMEOUT_MS",
    default: "5000",
    meaning: "until a connection to a provider stands, TLS and a proxy's tunnel included",
  },
  {
    name: "GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS",
    default: "120000",
    meaning: "until the first event of a stream",
  },
  {
    name: "GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS",
    default: "120000",
    meaning: "between two events of a stream",
  },
  {
    name: "GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS",
    default: "600000",
    meaning: "until an answer is complete",
  },
  {
    name: "GATEWAY_UPSTREAM_FULL_TIMEOUT_MS",
    default: "10000",
    meaning:
      "how long a call waits where every endpoint is at its `max_parallel_requests`; 0: none waits",
  },
  {
    name: "GATEWAY_UPLOAD_MIN_BYTES_PER_SECOND",
    default: "32768",
    meaning: "an upload that is slower for longer than a minute is given up",
  },
  {
    name: "GATEWAY_CORS_ORIGINS",
    default: null,
    meaning: "comma-separated origins that browsers may call from, or `*`; unset allows none",
  },
  {
    name: "GATEWAY_METRICS_TOKEN",
    default: null,
    meaning:
      "bearer token of `/metrics`; unset, `/metrics` answers only where `HOST` is a loopback address, to a loopback `Host` header, and not to requests that a proxy forwarded (`X-Forwarded-*`, `Forwarded`, `Via`, `X-Real-IP`)",
  },
  {
    name: "GATEWAY_MODEL_LISTS_SECONDS",
    default: "3600",
    meaning: "time between two readings of the providers' own lists of models; 0 reads none",
  },
  {
    name: "GATEWAY_HEALTH_CHECK_SECONDS",
    default: "10",
    meaning: "time between two health checks of self-hosted providers; 0 checks none",
  },
  {
    name: "GATEWAY_CACHE_MAX_ENTRIES",
    default: "10000",
    meaning: "answers that the response cache keeps for each organization",
  },
  {
    name: "GATEWAY_CACHE_MAX_BYTES",
    default: "268435456",
    meaning: "their bytes, for each organization",
  },
  {
    name: "GATEWAY_VECTOR_STORE_MODEL",
    default: null,
    meaning:
      "embedding model of vector stores, such as `openai/text-embedding-3-small` (`sandbox/embed` for trials), charged to the keys that add files and search; unset, they are searched by their words alone",
  },
  {
    name: "GATEWAY_MODERATION_MODEL",
    default: null,
    meaning:
      "provider and model that decide for guardrails of type `moderation`, such as `openai/omni-moderation-latest`; the operator pays for it. The provider has OpenAI's interface, with `/moderations`; unset, `sandbox/moderation` decides, which knows only the names of categories; if a hosted provider is configured, or the sandbox is off, such guardrails cannot be created",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER",
    default: "false",
    meaning:
      "run the Python that models write for the tool `code_interpreter`, in locked-down processes (Linux alone)",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_PROCESSES",
    default: "4",
    meaning: "how many responses can have a Python interpreter at a time; others wait 20 seconds",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_SECONDS",
    default: "30",
    meaning: "time that one call may take",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_MEMORY_MB",
    default: "512",
    meaning: "memory of the programs of one interpreter; its process takes up to 384 MB more",
  },
  {
    name: "GATEWAY_CODE_INTERPRETER_WHEELS",
    default: null,
    meaning:
      "folder of wheels (`.whl`, pure or for Pyodide) that Python has besides its standard library",
  },
  {
    name: "GATEWAY_DEBUG_ECHO",
    default: "false",
    meaning:
      "chats with `debug: {echo_upstream_body: true}` show their caller what was sent to the provider",
  },
  {
    name: "GATEWAY_KEEPALIVE_MS",
    default: "15000",
    meaning: "silence in a stream after which a comment is sent",
  },
  {
    name: "GATEWAY_CONNECTION_IDLE_SECONDS",
    default: "30",
    meaning:
      "a client's connection on which nothing moves for so long, while it waits for no answer, is closed, 1 to 255; above the idle timeout of a load balancer in front",
  },
  {
    name: "GATEWAY_MAX_BACKGROUND_RESPONSES",
    default: "100",
    meaning:
      "background responses that an organization may have running at a time, over all instances",
  },
  {
    name: "GATEWAY_SHUTDOWN_GRACE_MS",
    default: "25000",
    meaning: "time that running requests have to finish after SIGTERM",
  },
  {
    name: "STRIPE_SECRET_KEY",
    default: null,
    meaning:
      "takes payments through Stripe; unset: none are taken, or `GATEWAY_TEST_PAYMENTS` says so",
  },
  {
    name: "GATEWAY_TEST_PAYMENTS",
    default: null,
    meaning:
      "without `STRIPE_SECRET_KEY`, whether the test processor takes payments: anyone with the scope `billing:write` can then credit an organization for nothing; false takes none; unset: true only if `HOST` is a loopback address and neither a hosted provider, `GATEWAY_PUBLIC_URL` nor `GATEWAY_TRUSTED_PROXIES` is set",
  },
  {
    name: "STRIPE_WEBHOOK_SECRET",
    default: null,
    meaning:
      "verifies what Stripe reports to `/v1/billing/stripe/webhook`; unset, that is 404; with `STRIPE_SECRET_KEY` it must not be empty",
  },
  {
    name: "STRIPE_PRO_PRICE_ID",
    default: null,
    meaning:
      "the recurring price at Stripe (`price_…`) of the plan `pro`; unset, with `STRIPE_SECRET_KEY`, only operators put organizations on it",
  },
  {
    name: "GATEWAY_PRO_PRICE_USD",
    default: "20",
    meaning: "what the test processor is asked for each month of the plan `pro`",
  },
  {
    name: "STRIPE_API_BASE",
    default: "https://api.stripe.com",
    meaning: "address of Stripe's API",
  },
  {
    name: "S3_BUCKET",
    default: null,
    meaning: "bucket for stored files; unset, they lie in `DATA_DIR/files`",
  },
  {
    name: "S3_ENDPOINT",
    default: null,
    meaning: "address of an S3-compatible store; unset, that of AWS",
  },
  { name: "S3_ACCESS_KEY_ID", default: null, meaning: "credentials of the bucket" },
  { name: "S3_SECRET_ACCESS_KEY", default: null, meaning: "credentials of the bucket" },
  { name: "S3_REGION", default: null, meaning: "region of the bucket" },
  {
    name: "GATEWAY_SEARCH_BACKEND",
    default: null,
    meaning:
      "searches the web for models: `searxng`, `brave`, `tavily` or `exa`; unset, the sandbox answers with results of its own; if a hosted provider is configured, or the sandbox is off, requests for a search are 400",
  },
  {
    name: "GATEWAY_SEARCH_URL",
    default: null,
    meaning: "address of the search backend; unset, that of its vendor; SearXNG needs one",
  },
  {
    name: "GATEWAY_SEARCH_API_KEY",
    default: null,
    meaning: "key of the search backend; SearXNG needs none, and gets it as a bearer token",
  },
  {
    name: "GATEWAY_WEB_SEARCH_COST_USD",
    default: null,
    meaning:
      "what one search costs, before the fee; unset, the vendor's published price: Brave 0.005, Tavily 0.008, Exa 0.007, SearXNG 0",
  },
  {
    name: "LOG_LEVEL",
    default: "info",
    meaning: "`trace`, `debug`, `info`, `warn`, `error`, `fatal` or `silent`",
  },
  {
    name: "OTEL_EXPORTER_OTLP_ENDPOINT",
    default: null,
    meaning:
      "collector that traces are sent to, and metrics where `OTEL_METRICS_EXPORTER` says so, by OTLP over HTTP; unset, nothing is traced",
  },
  {
    name: "OTEL_EXPORTER_OTLP_HEADERS",
    default: null,
    meaning: "headers of each export, such as a key: `name=value` with commas between",
  },
  {
    name: "OTEL_TRACES_SAMPLER_ARG",
    default: "1",
    meaning:
      "share of the requests that are traced, 0 to 1; where a caller sends `traceparent`, that decides",
  },
  {
    name: "OTEL_METRICS_EXPORTER",
    default: null,
    meaning:
      "`otlp`: the metrics of `/metrics` are sent to the collector; `none`: they are not; unset, they are sent where `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` is set",
  },
  {
    name: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    default: null,
    meaning:
      "whole address that metrics are sent to; unset, `/v1/metrics` of `OTEL_EXPORTER_OTLP_ENDPOINT`",
  },
  {
    name: "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    default: null,
    meaning:
      "headers of the exports of metrics; to an address of their own those of `OTEL_EXPORTER_OTLP_HEADERS` are not sent",
  },
  {
    name: "OTEL_METRIC_EXPORT_INTERVAL",
    default: "60000",
    meaning: "milliseconds between exports of metrics",
  },
  {
    name: "OTEL_SERVICE_NAME",
    default: "model-gateway",
    meaning: "name of this service in traces and metrics",
  },
  {
    name: "GATEWAY_TRACE_CONTENT",
    default: "false",
    meaning: "traces hold the prompts of requests",
  },
] as const satisfies readonly ConfigVariable[];

export type SettingName = (typeof SETTINGS)[number]["name"];

const DEFAULTS = new Map<string, string | null>(SETTINGS.map((one) => [one.name, one.default]));

/** The text that stands for an unset variable, undefined where there is none. */
export function defaultText(name: SettingName): string | undefined {
  return DEFAULTS.get(name) ?? undefined;
}

function providerVariables(): ConfigVariable[] {
  return Object.values(PROVIDER_TYPES).flatMap((type) => {
    if (type.environmentPrefix === undefined) return [];
    return [
      {
        name: `${type.environmentPrefix}_API_KEY`,
        default: null,
        meaning: type.hostedBaseUrl
          ? `key of ${type.displayName}; alone it enables ${type.hostedBaseUrl}`
          : type.isSelfHosted
            ? `key of ${type.displayName}, where it wants one; set, it enables it at its usual address`
            : `enables ${type.displayName} with its built-in models`,
      },
      {
        name: `${type.environmentPrefix}_BASE_URL`,
        default: type.defaultBaseUrl ?? null,
        meaning: `address of ${type.displayName}; set, it enables it also without a key`,
      },
    ];
  });
}

export const DEFAULT_VERTEX_LOCATION = "global";

/** Settings of Vertex AI, Azure and Bedrock besides key and address. Most have the names that the clouds' own tools read. */
const CLOUD_VARIABLES = [
  { name: "VERTEX_PROJECT", default: null, meaning: "project of Vertex AI; set, it enables it" },
  {
    name: "VERTEX_LOCATION",
    default: DEFAULT_VERTEX_LOCATION,
    meaning: "location of Vertex AI's models: a region, `us`, `eu` or `global`",
  },
  {
    name: "GOOGLE_APPLICATION_CREDENTIALS",
    default: null,
    meaning:
      "JSON of a service account for Vertex AI, or the file that holds it; unset, without `VERTEX_API_KEY`, the machine's metadata server issues tokens",
  },
  {
    name: "GCE_METADATA_HOST",
    default: "metadata.google.internal",
    meaning: "host of that metadata server",
  },
  {
    name: "AZURE_API_VERSION",
    default: null,
    meaning:
      "version of Azure's interface, such as `2024-10-21`, for addresses that name the deployment",
  },
  {
    name: "AZURE_TENANT_ID",
    default: null,
    meaning: "tenant of Entra ID, which issues tokens for Azure OpenAI where there is no key",
  },
  { name: "AZURE_CLIENT_ID", default: null, meaning: "application in that tenant" },
  { name: "AZURE_CLIENT_SECRET", default: null, meaning: "secret of that application" },
  {
    name: "AZURE_AUTHORITY_HOST",
    default: "https://login.microsoftonline.com",
    meaning: "address of Entra ID",
  },
  {
    name: "AWS_REGION",
    default: null,
    meaning:
      "region of Amazon Bedrock, which gives its address; `AWS_DEFAULT_REGION` stands in for it",
  },
  {
    name: "AWS_BEARER_TOKEN_BEDROCK",
    default: null,
    meaning: "an API key of Bedrock; with a region it enables Amazon Bedrock",
  },
  {
    name: "AWS_ACCESS_KEY_ID",
    default: null,
    meaning: "with `AWS_SECRET_ACCESS_KEY` and a region it enables Amazon Bedrock",
  },
  { name: "AWS_SECRET_ACCESS_KEY", default: null, meaning: "secret of the access key" },
  { name: "AWS_SESSION_TOKEN", default: null, meaning: "session of a temporary access key" },
] as const satisfies readonly ConfigVariable[];

export type CloudVariable = (typeof CLOUD_VARIABLES)[number]["name"];

/** Every variable that the gateway reads, for its documentation. */
export const CONFIG_VARIABLES: readonly ConfigVariable[] = [
  ...SETTINGS,
  ...providerVariables(),
  ...CLOUD_VARIABLES,
];

/** The table of all variables in Markdown, as docs/configuration.md holds it. */
export function variablesTable(): string {
  const rows = CONFIG_VARIABLES.map(
    ({ name, default: text, meaning }) =>
      `| \`${name}\` | ${text === null ? "unset" : `\`${text}\``} | ${meaning} |`,
  );
  return ["| variable | default | meaning |", "|---|---|---|", ...rows].join("\n");
}
