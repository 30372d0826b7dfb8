import type { Labels, MetricReport, Sample } from "./metric-registry.ts";

/** What one process of several reported. */
export interface ProcessReport {
  /** Tells the processes apart in the labels of gauges. */
  readonly worker: string;
  readonly metrics: readonly MetricReport[];
  /** False for one that does not answer, or is no more: what it counted before still counts. */
  readonly isCurrent: boolean;
}

export interface GatheredMetrics {
  readonly reports: readonly ProcessReport[];
  /** Processes that were asked. */
  readonly asked: number;
  readonly answered: number;
}

/** Gauges of which the processes have a share each. Any other is shown for each process by itself. */
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
 * The metrics of several processes as those of one: counters and histograms are summed, and gauges where a
 * sum makes sense; other gauges get the label `worker`. A counter must not fall because a process is slow to
 * answer or was replaced, so what it counted last is summed too.
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

/** Counters and histograms of processes that are no more, as one report. */
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
  // A value that could not be read is no reason to lose the others.
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
