import pino, { type LevelWithSilent, type Logger } from "pino";
import { type Clock, systemClock } from "../../lib/clock.ts";
import { isFields } from "../../lib/json.ts";
import { isLoggedVerbosely } from "../../lib/request-log.ts";
import { MAX_TAGS, tagsOf } from "../../lib/request-tags.ts";
import type { RequestRecord, Telemetry } from "./interface.ts";
import { type LogDestination, LogWriter } from "./log-writer.ts";
import {
  type GatheredMetrics,
  MetricRegistry,
  mergeMetrics,
  metricsText,
} from "./metric-registry.ts";
import {
  LongestLag,
  registerCommitMetrics,
  registerProcessMetrics,
  registerTelemetryMetrics,
} from "./process-metrics.ts";
import { errorFields, redactLine, redactText, shownModel } from "./redact.ts";
import { RequestMetrics } from "./request-metrics.ts";
import { textLine } from "./text-line.ts";

export interface TelemetryOptions {
  readonly level: LevelWithSilent;
  /** Defaults to JSON. */
  readonly format?: "json" | "text";
  /** True if text has ANSI colors. */
  readonly hasColors?: boolean;
  /** Defaults to standard output. */
  readonly destination?: LogDestination;
  readonly clock?: Clock;
}

const STANDARD_OUTPUT = 1;
const NANO_PER_USD = 1e9;

/**
 * Creates the telemetry: logs as lines of JSON or text, metrics as Prometheus text. Its timer keeps
 * the process alive until `close`.
 */
export function createTelemetry(options: TelemetryOptions): Telemetry {
  const clock = options.clock ?? systemClock;
  const destination = options.destination ?? new LogWriter(STANDARD_OUTPUT, clock);
  const registry = new MetricRegistry();
  const requests = new RequestMetrics(registry);
  const commits = registerCommitMetrics(registry);
  const lag = new LongestLag(clock, () => performance.now());
  const time = isoTimes(clock);
  const write =
    options.format === "text"
      ? (line: string) => destination.write(textLine(line, options.hasColors === true))
      : (line: string) => destination.write(line);
  const log = createLog(options.level, write, destination, time);
  let clampedCharges = 0;
  let gather: (() => Promise<GatheredMetrics>) | undefined;

  registerProcessMetrics(registry);
  registerTelemetryMetrics(registry, { lag, destination, clampedCharges: () => clampedCharges });
  lag.start();
  const flush = () => destination.flushSync();
  process.on("exit", flush);

  return {
    log,
    record(request) {
      requests.count(request);
      const level = levelOf(request);
      if (log.isLevelEnabled(level)) write(requestLine(request, level, time()));
    },
    print(text) {
      destination.write(text);
      destination.flushSync();
    },
    countClampedCharge() {
      clampedCharges++;
    },
    observeCommit(units, durationMs) {
      commits.batch.observe(units);
      commits.duration.observe(durationMs / 1000);
    },
    gauge: (name, help, read) => registry.registerValue({ name, help, type: "gauge" }, read),
    labelledGauge: (name, help, label, read) =>
      registry.register({ name, help, type: "gauge" }, () =>
        Array.from(read(), ([labelValue, value]) => ({ labels: { [label]: labelValue }, value })),
      ),
    counter: (name, help, read) => registry.registerValue({ name, help, type: "counter" }, read),
    metrics: () => (gather === undefined ? registry.text() : gathered(registry, gather)),
    report: () => registry.report(),
    gatherMetricsWith(report) {
      gather = report;
    },
    metricsContentType: registry.contentType,
    async close() {
      lag.stop();
      process.off("exit", flush);
      await destination.close();
    },
  };
}

async function gathered(
  registry: MetricRegistry,
  gather: () => Promise<GatheredMetrics>,
): Promise<string> {
  let metrics: GatheredMetrics;
  try {
    metrics = await gather();
  } catch {
    return registry.text();
  }
  return metricsText(mergeMetrics(metrics));
}

/** Creates the logger. pino calls flushSync after a fatal line. */
function createLog(
  level: LevelWithSilent,
  write: (line: string) => void,
  destination: LogDestination,
  time: () => string,
): Logger {
  const output = { write, flushSync: () => destination.flushSync() };
  return pino(
    {
      level,
      base: undefined,
      timestamp: () => `,"time":"${time()}"`,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: errorFields, error: errorFields, cause: errorFields },
      hooks: { streamWrite: redactLine },
    },
    output,
  );
}

/**
 * Returns a function that returns the time in ISO 8601. It renders the text at most once a
 * millisecond.
 */
function isoTimes(clock: Clock): () => string {
  let madeForMs = Number.NaN;
  let text = "";
  return () => {
    const nowMs = clock.nowMs();
    if (nowMs !== madeForMs) {
      madeForMs = nowMs;
      text = new Date(nowMs).toISOString();
    }
    return text;
  };
}

/** Routes that orchestrators and monitoring call every few seconds. */
const PROBES = new Set(["/healthz", "/readyz", "/metrics"]);

function levelOf({ route, status }: RequestRecord): "debug" | "info" | "error" {
  if (PROBES.has(route)) return "debug";
  return status >= 500 ? "error" : "info";
}

/** Returns the log line of a request, with its line feed. */
function requestLine(request: RequestRecord, level: string, time: string): string {
  const line = JSON.stringify({
    level,
    time,
    request_id: request.requestId,
    organization_id: request.organizationId,
    key_id: request.keyId,
    method: request.method,
    route: request.route,
    status: request.status,
    model: request.model === undefined ? undefined : shownModel(request.model, request.provider),
    provider: request.provider,
    prompt_tokens: request.promptTokens,
    completion_tokens: request.completionTokens,
    cost_usd: request.costNano === undefined ? undefined : Number(request.costNano) / NANO_PER_USD,
    latency_ms: roundedMs(request.latencyMs),
    first_token_ms:
      request.firstTokenMs === undefined ? undefined : roundedMs(request.firstTokenMs),
    error_code: request.errorCode,
    cache: request.cache,
    ...(isLoggedVerbosely(request.request) && verboseFields(request)),
    msg: "request",
  });
  return `${line}\n`;
}

const MAX_VERBOSE_CHARACTERS = 512;

/**
 * Returns the additional fields in the line of a request with `debug`. They show how the request
 * was served, and contain no prompt and no member of `debug`.
 */
function verboseFields({
  request: fields,
  queuedMs,
  routing,
  guardrailHits,
}: RequestRecord): object {
  const { user, session_id: session, metadata } = fields ?? {};
  return {
    user: shownText(user),
    session_id: shownText(session),
    tags: isFields(metadata) ? tagsOf(metadata).slice(0, MAX_TAGS).map(shownText) : undefined,
    queued_ms: queuedMs === undefined ? undefined : roundedMs(queuedMs),
    tries: routing?.tries,
    unhealthy: routing?.postponed,
    full: routing?.full,
    guardrail_matches: guardrailHits,
  };
}

/** Returns a caller's text without secrets. */
function shownText(value: unknown): string | undefined {
  return typeof value === "string" ? redactText(value.slice(0, MAX_VERBOSE_CHARACTERS)) : undefined;
}

function roundedMs(ms: number): number {
  return Math.round(ms * 100) / 100;
}
