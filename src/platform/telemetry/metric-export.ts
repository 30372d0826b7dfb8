import { type HrTime, ValueType } from "@opentelemetry/api";
import { ProtobufMetricsSerializer } from "@opentelemetry/otlp-transformer";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  AggregationTemporality,
  type DataPoint,
  DataPointType,
  type Histogram,
  type MetricData,
  type ResourceMetrics,
} from "@opentelemetry/sdk-metrics";
import { steadyClock, systemClock } from "../../lib/clock.ts";
import { finishesWithin } from "../../lib/deadlines.ts";
import type { MetricExportConfig } from "../config/telemetry-settings.ts";
import type { Telemetry } from "./interface.ts";
import type { MetricReport, Sample } from "./metric-registry.ts";
import { OtlpExporter } from "./otlp-exporter.ts";

export interface MetricExportOptions {
  readonly config: MetricExportConfig;
  readonly instanceId: string;
  readonly telemetry: Pick<Telemetry, "log" | "report">;
}

const SCOPE = { name: "model-gateway" };
const BUCKET = "_bucket";
const SUM = "_sum";

/**
 * Sends the metrics of this process that `/metrics` shows to a collector, at intervals and at the
 * end.
 */
export class MetricExport {
  readonly #report: () => MetricReport[];
  readonly #exporter: OtlpExporter<ResourceMetrics>;
  readonly #resource: ResourceMetrics["resource"];
  readonly #startTime = hrTime(performance.timeOrigin);
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #log: Telemetry["log"];

  constructor({ config, instanceId, telemetry }: MetricExportOptions) {
    this.#report = () => telemetry.report();
    this.#log = telemetry.log;
    this.#resource = resourceFromAttributes({
      "service.name": config.serviceName,
      "service.instance.id": instanceId,
    });
    this.#exporter = new OtlpExporter({
      ...{ collector: config, what: "metrics", log: telemetry.log },
      serialize: (metrics) => ProtobufMetricsSerializer.serializeRequest(metrics),
    });
    this.#timer = setInterval(() => void this.#send(), config.everyMs);
    this.#timer.unref();
  }

  /** Sends the last values. Stops waiting after `withinMs`. */
  async close(withinMs: number): Promise<void> {
    clearInterval(this.#timer);
    await finishesWithin(this.#send(), systemClock, withinMs);
  }

  async #send(): Promise<void> {
    const times = { startTime: this.#startTime, endTime: hrTime(steadyClock.nowMs()) };
    let metrics: MetricData[];
    try {
      metrics = this.#report().map((report) => metricData(report, times));
    } catch (error) {
      this.#log.error({ err: error }, "the metrics cannot be read");
      return;
    }
    await this.#exporter.send({
      resource: this.#resource,
      scopeMetrics: [{ scope: SCOPE, metrics }],
    });
  }
}

type Times = Pick<DataPoint<unknown>, "startTime" | "endTime">;

/**
 * Converts a report to OTLP. Names, labels and values are the same as for Prometheus, so that
 * queries work for both.
 */
export function metricData(report: MetricReport, times: Times): MetricData {
  const { name, help, type, samples } = report;
  const common = {
    descriptor: { name, description: help, unit: "", valueType: ValueType.DOUBLE },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  };
  if (type === "histogram") {
    const dataPoints = histograms(samples, times);
    return { ...common, dataPointType: DataPointType.HISTOGRAM, dataPoints };
  }
  const dataPoints = samples
    // A value that could not be read is NaN.
    .filter(({ value }) => !Number.isNaN(value))
    .map(({ labels, value }) => ({ ...times, attributes: attributesOf(labels), value }));
  return type === "gauge"
    ? { ...common, dataPointType: DataPointType.GAUGE, dataPoints }
    : { ...common, dataPointType: DataPointType.SUM, isMonotonic: true, dataPoints };
}

/**
 * Converts the samples of histograms. Each histogram has its cumulative buckets in ascending order,
 * then its sum, then its count.
 */
function histograms(samples: readonly Sample[], times: Times): DataPoint<Histogram>[] {
  const points: DataPoint<Histogram>[] = [];
  let boundaries: number[] = [];
  let counts: number[] = [];
  let below = 0;
  let sum = 0;
  for (const { metricName = "", labels, value } of samples) {
    if (metricName.endsWith(BUCKET)) {
      const bound = Number(labels.le);
      if (!Number.isNaN(bound)) boundaries.push(bound);
      counts.push(value - below);
      below = value;
    } else if (metricName.endsWith(SUM)) sum = value;
    else {
      const buckets = { boundaries, counts };
      points.push({
        ...times,
        attributes: attributesOf(labels),
        value: { buckets, sum, count: value },
      });
      boundaries = [];
      counts = [];
      below = 0;
    }
  }
  return points;
}

function attributesOf(labels: Sample["labels"]): Record<string, string> {
  return Object.fromEntries(Object.entries(labels).map(([name, value]) => [name, String(value)]));
}

function hrTime(ms: number): HrTime {
  const seconds = Math.floor(ms / 1_000);
  return [seconds, Math.round((ms - seconds * 1_000) * 1e6)];
}
