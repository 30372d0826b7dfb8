import { afterEach, describe, expect, test } from "bun:test";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import type { Telemetry } from "../../src/platform/telemetry/interface.ts";
import { MetricExport } from "../../src/platform/telemetry/metric-export.ts";
import { startChatGateway } from "../support/chat-gateway.ts";
import { type CollectedMetric, startOtlpCollector } from "../support/otlp-collector.ts";
import { until } from "../support/until.ts";
import { CapturedLog, CHAT_RECORD } from "./captured-log.ts";

const opened: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0)) await one.stop();
});

function telemetryWith(log: CapturedLog): Telemetry {
  const telemetry = createTelemetry({ level: "info", destination: log });
  opened.push({ stop: () => telemetry.close() });
  return telemetry;
}

function exportTo(url: string, telemetry: Telemetry, everyMs = 3_600_000): MetricExport {
  const config = { url, headers: { "x-key": "abc" }, serviceName: "gateway-eu", everyMs };
  return new MetricExport({ config, instanceId: "ins_1", telemetry });
}

/** Each sample of Prometheus' text. */
async function scraped(telemetry: Telemetry): Promise<Set<string>> {
  const lines = (await telemetry.metrics()).split("\n");
  return new Set(lines.filter((line) => line !== "" && !line.startsWith("#")));
}

/** The same samples, from what a collector got. */
function samplesOf(metrics: readonly CollectedMetric[]): string[] {
  return metrics.flatMap(({ name, kind, points }) =>
    points.flatMap(({ attributes, value, count, buckets, bounds }) => {
      const sample = (suffix: string, shown: unknown, labels = attributes) => {
        const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
        return `${name}${suffix}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${shown}`;
      };
      if (kind !== "histogram") return [sample("", value)];
      let below = 0n;
      const cumulative = buckets.map((inBucket, index) => {
        below += inBucket;
        return sample("_bucket", below, { ...attributes, le: String(bounds[index] ?? "+Inf") });
      });
      return [...cumulative, sample("_sum", value), sample("_count", count)];
    }),
  );
}

describe("metrics to a collector", () => {
  test("are those of /metrics: every counter, gauge and histogram with its labels", async () => {
    const collector = startOtlpCollector();
    opened.push(collector);
    const telemetry = telemetryWith(new CapturedLog());
    for (const latencyMs of [2, 700, 999_999]) telemetry.record({ ...CHAT_RECORD, latencyMs });
    telemetry.observeCommit(3, 20);
    telemetry.gauge("gateway_test_unreadable", "Cannot be read.", () => {
      throw new Error("gone");
    });
    const metrics = exportTo(`${collector.url}/otlp/metrics`, telemetry);
    const before = await scraped(telemetry);
    await metrics.close(20_000);
    const after = await scraped(telemetry);

    const sent = collector.metrics.at(-1)!;
    const known = (sample: string) => before.has(sample) || after.has(sample);
    // What changes by itself is compared by name.
    const isMoving = (sample: string) => /^(process_|gateway_event_loop_lag)/.test(sample);
    const samples = samplesOf(sent);
    expect(samples.filter((sample) => !isMoving(sample) && !known(sample))).toEqual([]);
    const isRead = (sample: string) => !isMoving(sample) && !sample.endsWith(" Nan");
    const missing = [...before].filter((sample) => isRead(sample) && !samples.includes(sample));
    expect(missing).toEqual([]);
    expect(
      sent.find(({ name }) => name === "process_cpu_seconds_total")!.points[0]!.value,
    ).toBeGreaterThan(0);
    expect(sent.find(({ name }) => name === "gateway_test_unreadable")!.points).toEqual([]);

    const requests = sent.find(({ name }) => name === "gateway_requests_total")!;
    expect(requests).toMatchObject({ kind: "counter", description: "Finished requests." });
    expect(requests.points).toHaveLength(1);
    expect(requests.points[0]!.attributes).toEqual({
      method: "POST",
      route: "/v1/chat/completions",
      status: "200",
    });
    const { startNano, atNano } = requests.points[0]!;
    expect(startNano).toBeLessThan(atNano);
    expect(collector.resource).toEqual({
      "service.name": "gateway-eu",
      "service.instance.id": "ins_1",
    });
    expect(collector.requests[0]).toMatchObject({ path: "/otlp/metrics" });
    expect(collector.requests[0]!.headers.get("x-key")).toBe("abc");
  });

  test("are logged once as lost while the collector is away, and come again", async () => {
    const log = new CapturedLog();
    const telemetry = telemetryWith(log);
    let status = 400;
    let asked = 0;
    const server = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch() {
        asked++;
        return new Response(null, { status });
      },
    });
    opened.push({ stop: () => server.stop(true) });
    const metrics = exportTo(`http://127.0.0.1:${server.port}/`, telemetry, 1);
    const said = () => log.lines().map(({ msg }) => msg);
    await until("two refusals", () => asked > 1);
    expect(said()).toEqual(["the collector does not accept metrics; they are dropped"]);
    status = 200;
    await until("the collector's return", () => said().length > 1);
    expect(said()[1]).toBe("the collector accepts metrics again");
    await metrics.close(20_000);
  });
});

test("a gateway with a collector for metrics sends them as it ends, and no traces", async () => {
  const collector = startOtlpCollector();
  opened.push(collector);
  const gateway = await startChatGateway({
    environment: { OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${collector.url}/v1/metrics` },
  });
  const model = gateway.modelThat({ do: "complete", content: "hello" });
  expect((await gateway.chat(model)).status).toBe(200);
  await gateway.stop();
  const requests = collector.metrics.at(-1)!.find(({ name }) => name === "gateway_requests_total")!;
  const chat = requests.points.find(
    ({ attributes }) => attributes.route === "/v1/chat/completions",
  )!;
  expect(chat.value).toBe(1);
  expect(new Set(collector.requests.map(({ path }) => path))).toEqual(new Set(["/v1/metrics"]));
});
