import { expect, test } from "bun:test";
import { WorkerMetrics } from "../../src/main/start/worker-metrics.ts";
import {
  type GatheredMetrics,
  type MetricReport,
  mergeMetrics,
  metricsText,
  type Sample,
} from "../../src/platform/telemetry/metric-registry.ts";

function metric(type: MetricReport["type"], name: string, ...samples: Sample[]): MetricReport {
  return { name, help: "help", type, samples };
}

function valueIn(metrics: readonly MetricReport[], name: string, labels = {}): number | undefined {
  const found = metrics.find((one) => one.name === name);
  return found?.samples.find((sample) => Bun.deepEquals(sample.labels, labels))?.value;
}

const REPORT = [
  metric("counter", "calls_total", { labels: { a: 1, b: 2 }, value: 3 }),
  metric("gauge", "gateway_requests_in_flight", { labels: {}, value: 2 }),
  metric("gauge", "gateway_redis_up", { labels: {}, value: 1 }),
];

test("counters, histograms and shared gauges are summed, other gauges told by worker", async () => {
  const histogram = (value: number) =>
    metric(
      "histogram",
      "took_seconds",
      { metricName: "took_seconds_bucket", labels: { le: "1" }, value },
      { metricName: "took_seconds_count", labels: {}, value },
    );
  const merged = mergeMetrics({
    reports: [
      { worker: "1", metrics: [...REPORT, histogram(4)], isCurrent: true },
      {
        worker: "2",
        metrics: [
          metric("counter", "calls_total", { labels: { b: 2, a: 1 }, value: Number.NaN }),
          ...REPORT.map((one) => ({ ...one })),
          histogram(5),
        ],
        isCurrent: true,
      },
      { worker: "3", metrics: REPORT, isCurrent: false },
    ],
    requested: 3,
    answered: 2,
  });
  expect(valueIn(merged, "calls_total", { a: 1, b: 2 })).toBe(9);
  expect(valueIn(merged, "gateway_requests_in_flight")).toBe(4);
  expect(valueIn(merged, "gateway_redis_up", { worker: "2" })).toBe(1);
  expect(valueIn(merged, "gateway_redis_up", { worker: "3" })).toBeUndefined();
  const text = await metricsText(merged);
  expect(text).toContain('took_seconds_bucket{le="1"} 9');
  expect(text).toContain("took_seconds_count 9");
  expect(text).toContain("gateway_workers 3");
  expect(text).toContain("gateway_workers_answered 2");
});

class FakeWorker {
  readonly received: { kind: string; round?: number; gathered?: GatheredMetrics }[] = [];
  readonly pid: number;
  constructor(pid: number) {
    this.pid = pid;
  }
  send(message: unknown): void {
    this.received.push(message as FakeWorker["received"][number]);
  }
  get gathered(): GatheredMetrics | undefined {
    return this.received.findLast(({ kind }) => kind === "metrics-gathered")?.gathered;
  }
}

function report(metrics: WorkerMetrics, worker: FakeWorker): void {
  const { round } = worker.received.findLast(({ kind }) => kind === "metrics-report?")!;
  metrics.take(worker, { kind: "metrics-report", round, metrics: REPORT }, []);
}

test("a worker that hangs holds nothing up, and what it or a dead one counted stays in the sums", async () => {
  const metrics = new WorkerMetrics();
  const workers = [1, 2, 3].map((pid) => new FakeWorker(pid));
  const [one, two, three] = workers as [FakeWorker, FakeWorker, FakeWorker];
  const gather = (asker: FakeWorker) => metrics.take(asker, { kind: "metrics-gather" }, workers);
  gather(one);
  gather(two);
  for (const worker of workers) report(metrics, worker);
  expect(one.gathered).toMatchObject({ requested: 3, answered: 3 });
  expect(two.gathered).toEqual(one.gathered!);
  expect(valueIn(mergeMetrics(one.gathered!), "calls_total", { a: 1, b: 2 })).toBe(9);

  metrics.retire(three);
  const startedMs = performance.now();
  const before = one.received.length;
  metrics.take(one, { kind: "metrics-gather" }, [one, two]);
  report(metrics, one);
  while (one.received.length < before + 2) await Bun.sleep(20);
  expect(performance.now() - startedMs).toBeWithin(900, 1_500);
  expect(one.gathered).toMatchObject({ requested: 2, answered: 1 });
  const merged = mergeMetrics(one.gathered!);
  expect(valueIn(merged, "calls_total", { a: 1, b: 2 })).toBe(9);
  expect(valueIn(merged, "gateway_requests_in_flight")).toBe(2);
  // A late report is noted, and ends nothing.
  report(metrics, two);
  metrics.stop();
});

test("a worker that dies while it is waited for ends the round for the others", () => {
  const metrics = new WorkerMetrics();
  const [one, two] = [new FakeWorker(1), new FakeWorker(2)];
  metrics.take(one, { kind: "metrics-gather" }, [one, two]);
  report(metrics, one);
  expect(one.gathered).toBeUndefined();
  metrics.retire(two);
  expect(one.gathered).toMatchObject({ requested: 2, answered: 1 });
  expect(metrics.take(one, "ready", [])).toBeFalse();
  metrics.stop();
});
