import { refuse } from "./config-error.ts";
import type { EnvironmentReader } from "./environment.ts";
import type { SettingName } from "./variables.ts";

/** A collector that speaks OTLP over HTTP. */
export interface CollectorConfig {
  /** The address of exports of one kind, with the path. */
  readonly url: string;
  /** The headers of each export. They can contain a key. */
  readonly headers: Readonly<Record<string, string>>;
  readonly serviceName: string;
}

export interface TracingConfig extends CollectorConfig {
  /** The share of the requests that are traced, 0 to 1. */
  readonly sampleRatio: number;
  /** True if prompts are sent too. */
  readonly withContent: boolean;
}

export interface MetricExportConfig extends CollectorConfig {
  readonly everyMs: number;
}

const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const HEADER_VALUE = /^[\t\x20-\x7e]*$/;
const MIN_EXPORT_INTERVAL_MS = 1_000;
const MAX_EXPORT_INTERVAL_MS = 3_600_000;

/** Reads the settings of tracing. Returns undefined if nothing is traced. */
export function readTracing(reader: EnvironmentReader): TracingConfig | undefined {
  const endpoint = reader.url("OTEL_EXPORTER_OTLP_ENDPOINT");
  const settings = {
    headers: readHeaders(reader, "OTEL_EXPORTER_OTLP_HEADERS"),
    sampleRatio: reader.decimal("OTEL_TRACES_SAMPLER_ARG", 0, 1),
    serviceName: reader.text("OTEL_SERVICE_NAME")!,
    withContent: reader.boolean("GATEWAY_TRACE_CONTENT"),
  };
  return endpoint === undefined ? undefined : { url: `${endpoint}/v1/traces`, ...settings };
}

/** Reads the settings of metric export. Returns undefined if metrics are not sent. */
export function readMetricExport(reader: EnvironmentReader): MetricExportConfig | undefined {
  const shared = reader.url("OTEL_EXPORTER_OTLP_ENDPOINT");
  const metricsUrl = reader.url("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
  const metricsHeaders = readHeaders(reader, "OTEL_EXPORTER_OTLP_METRICS_HEADERS");
  const isEnabled =
    reader.text("OTEL_METRICS_EXPORTER") === undefined
      ? metricsUrl !== undefined
      : reader.oneOf("OTEL_METRICS_EXPORTER", ["none", "otlp"]) === "otlp";
  const everyMs = reader.integer(
    "OTEL_METRIC_EXPORT_INTERVAL",
    MIN_EXPORT_INTERVAL_MS,
    MAX_EXPORT_INTERVAL_MS,
  );
  if (!isEnabled) return undefined;
  const url = metricsUrl ?? (shared === undefined ? undefined : `${shared}/v1/metrics`);
  if (url === undefined) {
    const missing =
      "none, unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set";
    return reader.check(() => {
      throw refuse("OTEL_METRICS_EXPORTER", "otlp", missing);
    }, undefined);
  }
  // A separate collector for metrics does not get the key of the shared one.
  const headers = metricsUrl === undefined ? readHeaders(reader, "OTEL_EXPORTER_OTLP_HEADERS") : {};
  return {
    ...{ url, everyMs, serviceName: reader.text("OTEL_SERVICE_NAME")! },
    headers: { ...headers, ...metricsHeaders },
  };
}

/**
 * Reads headers in the format of W3C Baggage, which OpenTelemetry prescribes: percent-encoded
 * name=value pairs, separated by commas.
 */
function readHeaders(reader: EnvironmentReader, name: SettingName): Record<string, string> {
  return reader.check(
    () =>
      Object.fromEntries(
        reader.list(name).map((pair) => {
          const at = pair.indexOf("=");
          const header = pair.slice(0, Math.max(0, at)).trim();
          const value = decoded(pair.slice(at + 1).trim());
          if (HEADER_NAME.test(header) && value !== undefined && HEADER_VALUE.test(value)) {
            return [header.toLowerCase(), value];
          }
          throw refuse(name, "(hidden)", "comma-separated name=value pairs");
        }),
      ),
    {},
  );
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
