import type { Logger } from "pino";
import type { GatheredMetrics } from "./merged-metrics.ts";
import type { MetricReport } from "./metric-registry.ts";

/** One finished request, for its log line and the metrics. Never holds a secret or a prompt. */
export interface RequestRecord {
  readonly requestId: string;
  readonly method: string;
  /** The route's pattern, not the path: /v1/keys/:id */
  readonly route: string;
  /** The status told to the client; 499 where it went away. */
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
}

export interface Telemetry {
  readonly log: Logger;
  /** On the path of every request: must cost next to nothing. */
  record(request: RequestRecord): void;
  /** Provider usage above the hold, cut to it. */
  countClampedCharge(): void;
  observeCommit(units: number, durationMs: number): void;
  /** A value read when metrics are collected. */
  gauge(name: string, help: string, read: () => number): void;
  /** A gauge with one series for each value of a label; whoever reads them bounds their number. */
  labelledGauge(
    name: string,
    help: string,
    label: string,
    read: () => Iterable<readonly [labelValue: string, value: number]>,
  ): void;
  /** The same for a value that only grows; its name ends in _total. */
  counter(name: string, help: string, read: () => number): void;
  /** Prometheus text. */
  metrics(): Promise<string>;
  /** What this process alone measured. */
  report(): MetricReport[];
  /** Has `metrics` tell of several processes; where they cannot be gathered, of this one. */
  gatherMetricsWith(gather: () => Promise<GatheredMetrics>): void;
  metricsContentType: string;
  /** Writes what is buffered and stops the timers, within about a second; later lines are dropped. */
  close(): Promise<void>;
}
