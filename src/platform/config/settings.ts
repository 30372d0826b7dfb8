import { DatabaseTlsError, takeTls } from "../../../db/database-tls.ts";
import type { NanoUsd } from "../../lib/money.ts";
import { PLANS, type PlanName } from "../../lib/plans.ts";
import { ConfigError, refuse } from "./config-error.ts";
import type { DatabaseUrlForm, EnvironmentReader } from "./environment.ts";
import { readSearch, type SearchConfig } from "./search-settings.ts";
import { readSingleSignOn, type SingleSignOnConfig } from "./single-sign-on.ts";
import {
  type MetricExportConfig,
  readMetricExport,
  readTracing,
  type TracingConfig,
} from "./telemetry-settings.ts";

const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "fatal", "silent"] as const;
const POSTGRES_URL: DatabaseUrlForm = {
  schemes: ["postgres", "postgresql"],
  example: "postgres://user:password@host/name",
  faultOf(url) {
    try {
      takeTls(new URLSearchParams(url.search));
      return undefined;
    } catch (error) {
      if (error instanceof DatabaseTlsError) return error.message;
      throw error;
    }
  },
};
/** The path is the number of a database. With any other path the driver uses database 0. */
const REDIS_URL: DatabaseUrlForm = {
  schemes: ["redis", "rediss"],
  path: /^(\/\d{0,9})?$/,
  example: "redis://user:password@host/0",
};
const SMTP_URL: DatabaseUrlForm = {
  schemes: ["smtp", "smtps"],
  example: "smtps://user:password@mail.example.com",
};
const HOST = /^[A-Za-z0-9._:%-]{1,255}$/;
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1)$/i;
/** Bun stores the seconds in a byte. */
const MAX_CONNECTION_IDLE_SECONDS = 255;
/** One day. The platform's timers overflow at 2³¹ milliseconds, which is far more. */
const MAX_DURATION_MS = 86_400_000;
const MAX_CACHE_ENTRIES = 100_000;
const MAX_RETRY_DELAYS = 20;
const MAX_RETRY_DELAY_SECONDS = 604_800;
const MAX_UPLOAD_BYTES_PER_SECOND = 1_000_000_000;
const MAX_STARTING_CREDIT_USD = 1_000_000;
const MAX_SEARCH_USD = 1_000;
const MAX_PRO_PRICE_USD = 10_000;

type LogLevel = (typeof LOG_LEVELS)[number];
/** `auto` is text on a terminal and JSON otherwise. */
const LOG_FORMATS = ["auto", "json", "text"] as const;

/** The server that sends mail. */
export interface MailSettings {
  /** May contain a password. */
  readonly url: string;
  /** The sender's address. */
  readonly from: string;
}

export interface Settings {
  /** The port to listen on; 0 selects a free port. */
  readonly port: number;
  /** True if keys can sign in to the dashboard, beside accounts of people. */
  readonly keysSignIn: boolean;
  /** Undefined if the gateway sends no mail. */
  readonly mail: MailSettings | undefined;
  readonly host: string;
  /** True if only this machine can reach `host`. */
  readonly hostIsLoopback: boolean;
  /**
   * The address at which callers reach the gateway, without a trailing slash. If undefined, the
   * host that each caller names.
   */
  readonly publicUrl: string | undefined;
  /** CIDRs of the proxies whose X-Forwarded-For header is used. */
  readonly trustedProxies: readonly string[];
  readonly auditLogDays: number;
  readonly databaseUrl: string | undefined;
  readonly databasePoolSize: number;
  readonly redisUrl: string | undefined;
  readonly startingCreditNanoUsd: NanoUsd;
  /** The price of one search by a tool that the gateway runs, before the fee. */
  readonly fileSearchNanoUsd: NanoUsd;
  readonly plan: PlanName;
  /** The price of one month of the plan `pro` at the test processor. */
  readonly proPriceNanoUsd: NanoUsd;
  /** The share of successful completions that emit `completion.success`, 0 to 1. */
  readonly completionSuccessSample: number;
  readonly webhookRetryDelaysMs: readonly number[];
  readonly webhookAllowHttp: boolean;
  /** CIDRs that may be reached although they are not public. */
  readonly egressAllow: readonly string[];
  /** Host names, some with the prefix `*.`, or `*`. */
  readonly mcpServers: readonly string[];
  readonly upstreamTimeouts: UpstreamTimeouts;
  readonly uploadMinBytesPerSecond: number;
  /** The allowed origins, or a single `*`. */
  readonly corsOrigins: readonly string[];
  readonly metricsToken: string | undefined;
  /** Seconds between two readings of the providers' own model lists; 0 reads none. */
  readonly modelListsSeconds: number;
  /** The embedding model of vector stores. If undefined, they are searched by words only. */
  readonly vectorStoreModel: string | undefined;
  /**
   * Provider and model, `provider/model`. If undefined, no guardrail can have a rule of type
   * moderation.
   */
  readonly moderationModel: string | undefined;
  /** Seconds between two health checks of self-hosted providers; 0 checks none. */
  readonly healthCheckSeconds: number;
  /** True if chats can show the body that was sent to their provider. */
  readonly debugEcho: boolean;
  /** The limits of each organization's response cache. */
  readonly responseCache: { readonly maxEntries: number; readonly maxBytes: number };
  /** Undefined if the gateway runs no code. */
  readonly codeInterpreter: CodeInterpreterConfig | undefined;
  readonly keepaliveMs: number;
  readonly connectionIdleSeconds: number;
  /** The maximum number of running background responses of one organization, over all instances. */
  readonly maxBackgroundResponses: number;
  readonly shutdownGraceMs: number;
  readonly logLevel: LogLevel;
  readonly logFormat: (typeof LOG_FORMATS)[number];
}

interface CodeInterpreterConfig {
  readonly maxProcesses: number;
  readonly maxRunSeconds: number;
  readonly maxMemoryBytes: number;
  /** The folder of wheels that Python has in addition to its standard library. */
  readonly wheelFolder: string | undefined;
}

interface UpstreamTimeouts {
  readonly connectMs: number;
  /** Time until the first event of a stream. `idleMs` is the time between two events. */
  readonly firstTokenMs: number;
  readonly idleMs: number;
  readonly totalMs: number;
  /** The wait for a slot at an endpoint that is at its concurrency limit. */
  readonly fullMs: number;
}

/** One hundred years. */
const MAX_AUDIT_LOG_DAYS = 36_500;

/** Reads the settings of the environment. Throws ConfigError. */
export function readSettings(reader: EnvironmentReader): Settings {
  const host = reader.matching("HOST", HOST, "an IP address or a host name");
  return {
    port: reader.integer("PORT", 0, 65_535),
    host,
    hostIsLoopback: LOOPBACK.test(host),
    publicUrl: reader.url("GATEWAY_PUBLIC_URL"),
    trustedProxies: reader.cidrs("GATEWAY_TRUSTED_PROXIES"),
    auditLogDays: reader.integer("GATEWAY_AUDIT_LOG_DAYS", 1, MAX_AUDIT_LOG_DAYS),
    keysSignIn: reader.boolean("GATEWAY_KEY_SIGN_IN"),
    mail: reader.check(() => mailSettings(reader), undefined),
    databaseUrl: reader.databaseUrl("DATABASE_URL", POSTGRES_URL),
    databasePoolSize: reader.integer("DATABASE_POOL_SIZE", 1, 1000),
    redisUrl: reader.databaseUrl("REDIS_URL", REDIS_URL),
    startingCreditNanoUsd: reader.amountNanoUsd(
      "GATEWAY_STARTING_CREDIT_USD",
      MAX_STARTING_CREDIT_USD,
    ),
    fileSearchNanoUsd: reader.amountNanoUsd("GATEWAY_FILE_SEARCH_COST_USD", MAX_SEARCH_USD),
    plan: reader.oneOf("GATEWAY_PLAN", PLANS),
    proPriceNanoUsd: reader.amountNanoUsd("GATEWAY_PRO_PRICE_USD", MAX_PRO_PRICE_USD),
    completionSuccessSample: reader.decimal("GATEWAY_COMPLETION_SUCCESS_SAMPLE", 0, 1),
    webhookRetryDelaysMs: reader.check(() => retryDelaysMs(reader), []),
    webhookAllowHttp: reader.boolean("GATEWAY_WEBHOOK_ALLOW_HTTP"),
    egressAllow: reader.cidrs("GATEWAY_EGRESS_ALLOW"),
    mcpServers: reader.check(() => mcpServers(reader), []),
    upstreamTimeouts: upstreamTimeouts(reader),
    uploadMinBytesPerSecond: reader.integer(
      "GATEWAY_UPLOAD_MIN_BYTES_PER_SECOND",
      1,
      MAX_UPLOAD_BYTES_PER_SECOND,
    ),
    corsOrigins: reader.check(() => corsOrigins(reader), []),
    metricsToken: reader.secret("GATEWAY_METRICS_TOKEN"),
    vectorStoreModel: reader.text("GATEWAY_VECTOR_STORE_MODEL"),
    moderationModel: reader.text("GATEWAY_MODERATION_MODEL"),
    modelListsSeconds: reader.integer("GATEWAY_MODEL_LISTS_SECONDS", 0, 604_800),
    healthCheckSeconds: reader.integer("GATEWAY_HEALTH_CHECK_SECONDS", 0, 86_400),
    debugEcho: reader.boolean("GATEWAY_DEBUG_ECHO"),
    maxBackgroundResponses: reader.integer("GATEWAY_MAX_BACKGROUND_RESPONSES", 0, 10_000),
    responseCache: {
      maxEntries: reader.integer("GATEWAY_CACHE_MAX_ENTRIES", 1, MAX_CACHE_ENTRIES),
      maxBytes: reader.integer("GATEWAY_CACHE_MAX_BYTES", 1, Number.MAX_SAFE_INTEGER),
    },
    codeInterpreter: codeInterpreter(reader),
    keepaliveMs: reader.integer("GATEWAY_KEEPALIVE_MS", 1, MAX_DURATION_MS),
    connectionIdleSeconds: reader.integer(
      "GATEWAY_CONNECTION_IDLE_SECONDS",
      1,
      MAX_CONNECTION_IDLE_SECONDS,
    ),
    shutdownGraceMs: reader.integer("GATEWAY_SHUTDOWN_GRACE_MS", 0, MAX_DURATION_MS),
    logLevel: reader.oneOf("LOG_LEVEL", LOG_LEVELS),
    logFormat: reader.oneOf("GATEWAY_LOG_FORMAT", LOG_FORMATS),
  };
}

/** Links in mail need a fixed address: anybody can send a request with another Host header. */
function mailSettings(reader: EnvironmentReader): MailSettings | undefined {
  const url = reader.databaseUrl("SMTP_URL", SMTP_URL);
  if (url === undefined) return undefined;
  const from = reader.text("SMTP_FROM");
  if (from === undefined) throw new ConfigError("SMTP_FROM must be set with SMTP_URL");
  if (reader.url("GATEWAY_PUBLIC_URL") === undefined) {
    throw new ConfigError(
      "GATEWAY_PUBLIC_URL must be set with SMTP_URL, for the links in messages",
    );
  }
  return { url, from };
}

function codeInterpreter(reader: EnvironmentReader): CodeInterpreterConfig | undefined {
  const isOn = reader.boolean("GATEWAY_CODE_INTERPRETER");
  const config = {
    maxProcesses: reader.integer("GATEWAY_CODE_INTERPRETER_PROCESSES", 1, 256),
    maxRunSeconds: reader.integer("GATEWAY_CODE_INTERPRETER_SECONDS", 1, 600),
    maxMemoryBytes: reader.integer("GATEWAY_CODE_INTERPRETER_MEMORY_MB", 64, 2048) * 1_048_576,
    wheelFolder: reader.text("GATEWAY_CODE_INTERPRETER_WHEELS"),
  };
  return isOn ? config : undefined;
}

function upstreamTimeouts(reader: EnvironmentReader): UpstreamTimeouts {
  return {
    connectMs: reader.integer("GATEWAY_UPSTREAM_CONNECT_TIMEOUT_MS", 1, MAX_DURATION_MS),
    firstTokenMs: reader.integer("GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS", 1, MAX_DURATION_MS),
    idleMs: reader.integer("GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS", 1, MAX_DURATION_MS),
    totalMs: reader.integer("GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS", 1, MAX_DURATION_MS),
    fullMs: reader.integer("GATEWAY_UPSTREAM_FULL_TIMEOUT_MS", 0, MAX_DURATION_MS),
  };
}

function retryDelaysMs(reader: EnvironmentReader): number[] {
  const name = "GATEWAY_WEBHOOK_RETRY_DELAYS";
  const items = reader.list(name);
  const delaysMs = items.map((item) =>
    /^\d{1,6}(\.\d{1,3})?$/.test(item) ? Math.round(Number(item) * 1000) : Number.NaN,
  );
  const valid = delaysMs.every((delayMs) => delayMs <= MAX_RETRY_DELAY_SECONDS * 1000);
  if (!valid || delaysMs.length > MAX_RETRY_DELAYS) {
    const accepted = `1 to ${MAX_RETRY_DELAYS} comma-separated numbers of seconds, each from 0 to ${MAX_RETRY_DELAY_SECONDS}`;
    throw refuse(name, items.join(","), accepted);
  }
  return delaysMs;
}

const SERVER_HOST = /^(?:\*|(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])$/;

function mcpServers(reader: EnvironmentReader): string[] {
  const items = reader.list("GATEWAY_MCP_SERVERS").map((item) => item.toLowerCase());
  for (const item of items) {
    if (!SERVER_HOST.test(item)) {
      const accepted = "comma-separated host names like mcp.example.com or *.example.com, or *";
      throw refuse("GATEWAY_MCP_SERVERS", item, accepted);
    }
  }
  return items;
}

function corsOrigins(reader: EnvironmentReader): string[] {
  const items = reader.list("GATEWAY_CORS_ORIGINS");
  if (items.length === 1 && items[0] === "*") return items;
  for (const item of items) {
    if (URL.parse(item)?.origin !== item || !/^https?:/.test(item)) {
      const accepted = "comma-separated origins like https://app.example.com, or a single *";
      throw refuse("GATEWAY_CORS_ORIGINS", item, accepted);
    }
  }
  return items;
}

const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const REGION = /^[A-Za-z0-9-]{1,64}$/;

interface StripeConfig {
  readonly secretKey: string;
  readonly webhookSecret: string | undefined;
  readonly apiBase: string;
  /** Stripe's price of the plan `pro`. If undefined, the plan is not sold. */
  readonly proPriceId: string | undefined;
}

interface S3Config {
  readonly bucket: string;
  readonly endpoint: string | undefined;
  readonly region: string | undefined;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

export interface ExternalServices {
  /** If undefined, there is only the built-in test processor. */
  readonly stripe: StripeConfig | undefined;
  /** If undefined, files are stored in the data folder. */
  readonly s3: S3Config | undefined;
  /** Undefined if no backend of web search is configured. */
  readonly search: SearchConfig | undefined;
  readonly tracing: TracingConfig | undefined;
  /** If undefined, people sign in with keys only. */
  readonly singleSignOn: SingleSignOnConfig | undefined;
  readonly metricExport: MetricExportConfig | undefined;
}

/** Reads the settings of external services. Throws ConfigError. */
export function readExternalServices(reader: EnvironmentReader): {
  readonly services: ExternalServices;
  readonly warnings: readonly string[];
} {
  const { search, warnings: searchWarnings } = readSearch(reader);
  const services = {
    search,
    stripe: readStripe(reader),
    s3: reader.check(() => readS3(reader), undefined),
    tracing: readTracing(reader),
    singleSignOn: readSingleSignOn(reader),
    metricExport: readMetricExport(reader),
  };
  const warnings = [...searchWarnings];
  if (services.stripe === undefined && reader.text("STRIPE_WEBHOOK_SECRET") !== undefined) {
    warnings.push("STRIPE_WEBHOOK_SECRET is ignored: STRIPE_SECRET_KEY is not set");
  }
  if (services.stripe !== undefined && services.stripe.webhookSecret === undefined) {
    warnings.push(
      "STRIPE_WEBHOOK_SECRET is not set: the gateway rejects Stripe's webhooks and looks up payments at intervals instead",
    );
  }
  if (services.s3 === undefined && reader.text("S3_ENDPOINT") !== undefined) {
    warnings.push("S3_ENDPOINT is ignored: S3_BUCKET is not set");
  }
  return { services, warnings };
}

function readStripe(reader: EnvironmentReader): StripeConfig | undefined {
  const secretKey = reader.secret("STRIPE_SECRET_KEY");
  const webhookSecret = reader.secret("STRIPE_WEBHOOK_SECRET");
  const apiBase = reader.url("STRIPE_API_BASE");
  if (secretKey === undefined || apiBase === undefined) return undefined;
  // Other variables count as unset if they are empty. This one verifies reports of money and must
  // not be left out by mistake.
  if (reader.isEmpty("STRIPE_WEBHOOK_SECRET")) {
    const accepted = "the signing secret of the endpoint at Stripe, or unset";
    return reader.check(() => {
      throw refuse("STRIPE_WEBHOOK_SECRET", "", accepted);
    }, undefined);
  }
  return { secretKey, webhookSecret, apiBase, proPriceId: reader.text("STRIPE_PRO_PRICE_ID") };
}

export function readS3(reader: EnvironmentReader): S3Config | undefined {
  const bucket = reader.text("S3_BUCKET");
  const region = reader.text("S3_REGION");
  const endpoint = reader.url("S3_ENDPOINT");
  const accessKeyId = reader.secret("S3_ACCESS_KEY_ID");
  const secretAccessKey = reader.secret("S3_SECRET_ACCESS_KEY");
  if (bucket !== undefined && !BUCKET.test(bucket)) {
    throw refuse("S3_BUCKET", bucket, "the name of a bucket");
  }
  if (region !== undefined && !REGION.test(region)) {
    throw refuse("S3_REGION", region, "the name of a region like eu-central-1");
  }
  if (bucket === undefined) return undefined;
  if (reader.text("S3_ACCESS_KEY_ID") === undefined) {
    throw refuse("S3_ACCESS_KEY_ID", undefined, "set together with S3_BUCKET");
  }
  if (reader.text("S3_SECRET_ACCESS_KEY") === undefined) {
    throw refuse("S3_SECRET_ACCESS_KEY", undefined, "set together with S3_BUCKET");
  }
  // Undefined only if their faults were collected, which stops the start.
  return {
    bucket,
    endpoint,
    region,
    accessKeyId: accessKeyId ?? "",
    secretAccessKey: secretAccessKey ?? "",
  };
}
