import type { Logger } from "pino";
import type {
  GuardrailHit,
  LoggedFields,
  RecordedRouting,
  RequestLog,
} from "../../lib/request-log.ts";
import type { GatheredMetrics, MetricReport } from "./metric-registry.ts";

/** One finished request, for its log line and the metrics. Never holds a secret or a prompt. */
export interface RequestRecord {
  readonly requestId: string;
  readonly method: string;
  /** The route's pattern, not the path: /v1/keys/:id */
  readonly route: string;
  /** The status sent to the client; 499 if it disconnected. */
  readonly status: number;
  readonly latencyMs: number;
  readonly organizationId: string | undefined;
  readonly keyId: string | undefined;
  readonly model: string | undefined;
  readonly provider: string | undefined;
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  readonly costNano: bigint | undefined;
  readonly firstTokenMs: number | undefined;
  readonly errorCode: string | undefined;
  /**
   * The fields of a model request. The log has some of them if the request has `debug`, and never a
   * prompt.
   */
  readonly request?: LoggedFields | undefined;
  readonly queuedMs?: number | undefined;
  readonly routing?: RecordedRouting | undefined;
  readonly guardrailHits?: readonly GuardrailHit[] | undefined;
  /** Undefined if the request did not ask for the response cache. */
  readonly cache: "hit" | "miss" | undefined;
}

/**
 * Returns the record of a request that ends now. A request without an organization has an operator
 * key, or no key.
 */
export function requestRecord(
  ended: { readonly requestId: string; readonly startedMs: number; readonly log: RequestLog },
  { method, path }: { readonly method: string; readonly path: string },
  status: number,
  organizationId: string | undefined,
  keyId: string | undefined,
): RequestRecord {
  const { log } = ended;
  return {
    requestId: ended.requestId,
    method,
    route: path,
    status: log.status ?? status,
    latencyMs: performance.now() - ended.startedMs,
    organizationId,
    keyId,
    model: log.model,
    provider: log.provider,
    promptTokens: log.promptTokens,
    completionTokens: log.completionTokens,
    costNano: log.costNano,
    firstTokenMs: log.firstTokenMs,
    errorCode: log.errorCode,
    request: log.request,
    queuedMs: log.queuedMs,
    routing: log.routing,
    guardrailHits: log.guardrailHits,
    cache: log.cache,
  };
}

export interface Telemetry {
  readonly log: Logger;
  /** Records a finished request. Called for every request. */
  record(request: RequestRecord): void;
  /** Writes text for people to the output of the log, after the lines before it. Waits until it is written. */
  print(text: string): void;
  /** Counts a charge that was cut to its hold because the provider reported more. */
  countClampedCharge(): void;
  observeCommit(units: number, durationMs: number): void;
  /** Registers a value that is read at each scrape. */
  gauge(name: string, help: string, read: () => number): void;
  /**
   * Registers a gauge with one series for each value of a label. `read` must bound their number.
   */
  labelledGauge(
    name: string,
    help: string,
    label: string,
    read: () => Iterable<readonly [labelValue: string, value: number]>,
  ): void;
  /** Registers a value that only grows and is read at each scrape. Its name ends in _total. */
  counter(name: string, help: string, read: () => number): void;
  /** Returns the metrics as Prometheus text. */
  metrics(): Promise<string>;
  /** Returns the metrics of this process only. */
  report(): MetricReport[];
  /** Makes `metrics` cover several processes, or only this one if `gather` fails. */
  gatherMetricsWith(gather: () => Promise<GatheredMetrics>): void;
  metricsContentType: string;
  /**
   * Writes the buffered lines and stops the timers, in about a second at most. Drops later lines.
   */
  close(): Promise<void>;
}
