import type { Labels, MetricReport, Sample } from "./metric-registry.ts";

/** The metrics of one of several processes. */
export interface ProcessReport {
  /** The value of the label `worker`. */
  readonly worker: string;
  readonly metrics: readonly MetricReport[];
  /** False if the process has ended or did not answer; its earlier counts still count. */
  readonly isCurrent: boolean;
}

export interface GatheredMetrics {
  readonly reports: readonly ProcessReport[];
  /** Processes that were asked. */
  readonly asked: number;
  readonly answered: number;
}

/** Gauges that are summed over the processes. Others are shown for each process. */
const SHARED_GAUGES: ReadonlySet<string> = new Set([
  "gateway_actors",
  "gateway_commit_queue",
  "gateway_fine_tuning_jobs",
  "gateway_holds_outstanding",
  "gateway_mailbox_depth",
  "gateway_requests_in_flight",
  "gateway_streams_running",
  "gateway_webhook_attempts_in_flight",
  "gateway_webhooks_owned",
]);
const WORKER_LABEL = "worker";

/**
 * Merges the metrics of several processes: sums counters, histograms and shared gauges, and gives other
 * gauges the label `worker`. The last known counts of a process that is slow or was replaced are included,
 * because a counter must not fall.
 */
export function mergeMetrics({ reports, asked, answered }: GatheredMetrics): MetricReport[] {
  const merged = new Map<string, { first: MetricReport; sums: Map<string, Sample> }>();
  for (const { worker, metrics, isCurrent } of reports) {
    for (const metric of metrics) {
      if (metric.type === "gauge" && !isCurrent) continue;
      const isApart = metric.type === "gauge" && !SHARED_GAUGES.has(metric.name);
      const entry = merged.get(metric.name) ?? { first: metric, sums: new Map() };
      merged.set(metric.name, entry);
      for (const sample of metric.samples) {
        const labels = isApart ? { ...sample.labels, [WORKER_LABEL]: worker } : sample.labels;
        addSample(entry.sums, { ...sample, labels });
      }
    }
  }
  return [
    ...[...merged.values()].map(({ first, sums }) => ({ ...first, samples: [...sums.values()] })),
    gauge("gateway_workers", "Worker processes that were asked for these metrics.", asked),
    gauge("gateway_workers_answered", "Worker processes that answered in time.", answered),
  ];
}

/** Merges the counters and histograms of processes that have ended into one report. */
export function mergeRetired(reports: readonly ProcessReport[]): ProcessReport {
  const counted = reports.map((report) => ({ ...report, isCurrent: false }));
  const metrics = mergeMetrics({ reports: counted, asked: 0, answered: 0 });
  return {
    worker: "retired",
    metrics: metrics.filter(({ type }) => type !== "gauge"),
    isCurrent: false,
  };
}

function addSample(sums: Map<string, Sample>, sample: Sample): void {
  const key = JSON.stringify([sample.metricName, ...sortedEntries(sample.labels)]);
  const before = sums.get(key);
  if (before === undefined || Number.isNaN(before.value)) sums.set(key, sample);
  // NaN is a value that could not be read: it must not replace the sum of the others.
  else if (!Number.isNaN(sample.value)) {
    sums.set(key, { ...before, value: before.value + sample.value });
  }
}

function sortedEntries(labels: Labels): [string, string | number][] {
  return Object.entries(labels).toSorted(([one], [other]) => (one < other ? -1 : 1));
}

function gauge(name: string, help: string, value: number): MetricReport {
  return { name, help, type: "gauge", samples: [{ labels: {}, value }] };
}
