import { afterEach, describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import type { Telemetry } from "../../src/platform/telemetry/interface.ts";
import { MetricRegistry } from "../../src/platform/telemetry/metric-registry.ts";
import { LongestLag } from "../../src/platform/telemetry/process-metrics.ts";
import { CapturedLog, CHAT_RECORD, refused } from "./captured-log.ts";

const SAMPLE =
  /^([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*\})?) (-?[\d.e+-]+|Nan|[+-]Inf)$/;
const MODEL = 'model="openai/gpt-4o-mini",provider="openai"';
const open: Telemetry[] = [];

function start(): Telemetry {
  const telemetry = createTelemetry({
    level: "info",
    destination: new CapturedLog(),
    clock: new VirtualClock(),
  });
  open.push(telemetry);
  return telemetry;
}

/** Every sample by name and labels; throws on a line that is not of Prometheus' text format. */
async function scrape(telemetry: Telemetry): Promise<Map<string, number>> {
  const samples = new Map<string, number>();
  for (const line of (await telemetry.metrics()).split("\n")) {
    if (line === "" || line.startsWith("# HELP ") || line.startsWith("# TYPE ")) continue;
    const [, series, value] = SAMPLE.exec(line) ?? [];
    if (series === undefined || samples.has(series)) throw new Error(`bad line: ${line}`);
    samples.set(series, value === "Nan" ? Number.NaN : Number(value));
  }
  return samples;
}

afterEach(async () => {
  for (const telemetry of open.splice(0)) await telemetry.close();
});

describe("metrics of requests", () => {
  test("count requests by route, method and status", async () => {
    const telemetry = start();
    telemetry.record(CHAT_RECORD);
    telemetry.record(CHAT_RECORD);
    telemetry.record(refused("rate_limit_exceeded", 429));
    telemetry.record({ ...refused("key_not_found", 404), method: "GET", route: "/v1/keys/:id" });
    const samples = await scrape(telemetry);
    const chat = 'method="POST",route="/v1/chat/completions"';
    expect(samples.get(`gateway_requests_total{${chat},status="200"}`)).toBe(2);
    expect(samples.get(`gateway_requests_total{${chat},status="429"}`)).toBe(1);
    const keys = 'method="GET",route="/v1/keys/:id",status="404"';
    expect(samples.get(`gateway_requests_total{${keys}}`)).toBe(1);
  });

  test("hold latency and time to first token as cumulative histograms in seconds", async () => {
    const telemetry = start();
    for (const latencyMs of [2.5, 2.6, 700, 999_999]) {
      telemetry.record({ ...CHAT_RECORD, latencyMs, firstTokenMs: latencyMs / 2 });
    }
    telemetry.record({ ...CHAT_RECORD, latencyMs: 1, firstTokenMs: undefined });
    const samples = await scrape(telemetry);
    const name = "gateway_request_duration_seconds";
    const route = 'method="POST",route="/v1/chat/completions"';
    for (const [le, count] of [
      ["0.0025", 2],
      ["0.005", 3],
      ["0.5", 3],
      ["1", 4],
      ["600", 4],
      ["+Inf", 5],
    ] as const) {
      expect(samples.get(`${name}_bucket{${route},le="${le}"}`)).toBe(count);
    }
    expect(samples.get(`${name}_count{${route}}`)).toBe(5);
    expect(samples.get(`${name}_sum{${route}}`)).toBeCloseTo(1000.7051, 4);
    expect(samples.get(`gateway_time_to_first_token_seconds_count{${MODEL}}`)).toBe(4);
    expect(samples.get(`gateway_time_to_first_token_seconds_bucket{${MODEL},le="0.5"}`)).toBe(3);
  });

  test("sum tokens and cost by model and provider", async () => {
    const telemetry = start();
    telemetry.record(CHAT_RECORD);
    telemetry.record({ ...CHAT_RECORD, status: 499, errorCode: "client_closed_request" });
    const samples = await scrape(telemetry);
    expect(samples.get(`gateway_tokens_total{${MODEL},kind="prompt"}`)).toBe(240);
    expect(samples.get(`gateway_tokens_total{${MODEL},kind="completion"}`)).toBe(60);
    expect(samples.get(`gateway_cost_usd_total{${MODEL}}`)).toBe(0.00007488);
    expect(samples.get(`gateway_model_requests_total{${MODEL},status="200"}`)).toBe(1);
    expect(samples.get(`gateway_model_requests_total{${MODEL},status="499"}`)).toBe(1);
  });

  test("tell refusals for rate, budget and credits apart, from zero on", async () => {
    const telemetry = start();
    const refusal = (code: string) => `gateway_refusals_total{code="${code}"}`;
    const before = await scrape(telemetry);
    for (const code of ["rate_limit_exceeded", "budget_exhausted", "insufficient_credits"]) {
      expect(before.get(refusal(code))).toBe(0);
    }
    telemetry.record(refused("budget_exhausted", 402));
    telemetry.record(refused("invalid_body", 400));
    const after = await scrape(telemetry);
    expect(after.get(refusal("budget_exhausted"))).toBe(1);
    expect(after.has(refusal("invalid_body"))).toBe(false);
    expect(after.get('gateway_errors_total{code="invalid_body"}')).toBe(1);
  });

  test("never take a label from a model that was not routed", async () => {
    const telemetry = start();
    telemetry.record(refused("model_not_found", 404, 'evil"}\n# HELP x'));
    expect(await telemetry.metrics()).not.toContain("evil");
  });

  test("stay bounded: beyond 500 models and 300 routes all is counted as other", async () => {
    const telemetry = start();
    for (let index = 0; index < 2000; index++) {
      telemetry.record({ ...CHAT_RECORD, model: `m${index}`, route: `/r/${index}` });
    }
    const samples = await scrape(telemetry);
    const ofModels = [...samples.keys()].filter((key) => key.startsWith("gateway_cost_usd_total"));
    expect(ofModels).toHaveLength(501);
    const other = 'model="other",provider="other"';
    expect(samples.get(`gateway_model_requests_total{${other},status="200"}`)).toBe(1500);
    const otherRoute = 'method="other",route="other",status="200"';
    expect(samples.get(`gateway_requests_total{${otherRoute}}`)).toBe(1700);
  });

  test("escape odd label values", async () => {
    const telemetry = start();
    telemetry.record({ ...CHAT_RECORD, model: 'a"b\\c\nd' });
    expect(await scrape(telemetry)).toHaveProperty("size");
    expect(await telemetry.metrics()).toContain('model="a\\"b\\\\c\\nd"');
  });
});

describe("other metrics", () => {
  test("hold size and duration of commits, clamped charges and the process", async () => {
    const telemetry = start();
    telemetry.observeCommit(1, 0.4);
    telemetry.observeCommit(40, 12);
    telemetry.countClampedCharge();
    const samples = await scrape(telemetry);
    expect(samples.get('gateway_commit_batch_size_bucket{le="32"}')).toBe(1);
    expect(samples.get("gateway_commit_batch_size_sum")).toBe(41);
    expect(samples.get('gateway_commit_duration_seconds_bucket{le="0.01"}')).toBe(1);
    expect(samples.get("gateway_commit_duration_seconds_count")).toBe(2);
    expect(samples.get("gateway_charge_clamped_total")).toBe(1);
    expect(samples.get("gateway_log_lines_dropped_total")).toBe(0);
    expect(samples.get("process_resident_memory_bytes")).toBeGreaterThan(1e6);
    expect(samples.get("process_cpu_seconds_total")).toBeGreaterThan(0);
    const startSeconds = samples.get("process_start_time_seconds")!;
    expect(Math.abs(startSeconds - (Date.now() / 1000 - process.uptime()))).toBeLessThan(3);
  });

  test("read a gauge at each scrape, and survive one that throws", async () => {
    const telemetry = start();
    let held = 3;
    telemetry.gauge("gateway_holds_outstanding", "Holds.", () => held);
    telemetry.labelledGauge("gateway_labelled", "Labelled.", "organization", () => [
      ["org_a", 1.5],
      ['org_"b', -2],
    ]);
    telemetry.gauge("gateway_broken", "Broken.", () => {
      throw new Error("no");
    });
    expect((await scrape(telemetry)).get("gateway_holds_outstanding")).toBe(3);
    held = 0;
    const samples = await scrape(telemetry);
    expect(samples.get("gateway_holds_outstanding")).toBe(0);
    expect(samples.get("gateway_broken")).toBeNaN();
    expect(samples.get('gateway_labelled{organization="org_a"}')).toBe(1.5);
    expect(samples.get('gateway_labelled{organization="org_\\"b"}')).toBe(-2);
  });

  test("refuse a name that is taken", () => {
    const registry = new MetricRegistry();
    const description = { name: "gateway_x", help: "X.", type: "gauge" } as const;
    registry.registerValue(description, () => 1);
    expect(() => registry.registerValue(description, () => 2)).toThrow("gateway_x");
  });

  test("show the longest lag of the event loop of the last 15 seconds", () => {
    const clock = new VirtualClock();
    let monotonicMs = 0;
    const lag = new LongestLag(clock, () => monotonicMs);
    const second = (lateMs: number) => {
      monotonicMs += 1000 + lateMs;
      clock.advance(1000);
    };
    lag.start();
    expect(lag.maxMs()).toBe(0);
    second(40);
    second(5);
    expect(lag.maxMs()).toBe(40);
    for (let count = 0; count < 14; count++) second(1);
    expect(lag.maxMs()).toBe(5);
    lag.stop();
    second(900);
    expect(lag.maxMs()).toBe(5);
  });
});
