import { refuse } from "./config-error.ts";
import type { EnvironmentReader } from "./environment.ts";

export interface TracingConfig {
  /** Of the collector: OTLP over HTTP. */
  readonly endpoint: string;
  /** Of each export: they may hold a key. */
  readonly headers: Readonly<Record<string, string>>;
  /** 0 to 1. */
  readonly sampleRatio: number;
  readonly serviceName: string;
  /** Prompts are sent, too. */
  readonly withContent: boolean;
}

const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const HEADER_VALUE = /^[\t\x20-\x7e]*$/;

/** Undefined: nothing is traced. */
export function readTracing(reader: EnvironmentReader): TracingConfig | undefined {
  const endpoint = reader.url("OTEL_EXPORTER_OTLP_ENDPOINT");
  const settings = {
    headers: reader.check(() => headersOf(reader), {}),
    sampleRatio: reader.decimal("OTEL_TRACES_SAMPLER_ARG", 0, 1),
    serviceName: reader.text("OTEL_SERVICE_NAME")!,
    withContent: reader.boolean("GATEWAY_TRACE_CONTENT"),
  };
  return endpoint === undefined ? undefined : { endpoint, ...settings };
}

/** Pairs as W3C Baggage has them, which OpenTelemetry says: name=value, percent-encoded, with commas between. */
function headersOf(reader: EnvironmentReader): Record<string, string> {
  const name = "OTEL_EXPORTER_OTLP_HEADERS";
  return Object.fromEntries(
    reader.list(name).map((pair) => {
      const at = pair.indexOf("=");
      const header = pair.slice(0, Math.max(0, at)).trim();
      const value = decoded(pair.slice(at + 1).trim());
      if (HEADER_NAME.test(header) && value !== undefined && HEADER_VALUE.test(value)) {
        return [header.toLowerCase(), value];
      }
      throw refuse(name, "(hidden)", "name=value pairs with commas between");
    }),
  );
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
