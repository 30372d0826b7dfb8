import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { resourceFromAttributes } from "@opentelemetry/resources";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import type { RequestRecord } from "../../src/telemetry/interface.ts";
import { RecordedTrace } from "../../src/telemetry/request-trace.ts";
import { Tracing } from "../../src/telemetry/tracing.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { readStream } from "../support/stream-reader.ts";
import { type CollectedSpan, startTraceCollector } from "../support/trace-collector.ts";
import { until } from "../support/until.ts";

const TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
const CALLER = `00-${TRACE_ID}-b7ad6b7169203331-01`;
const ROUTE = { method: "POST", path: "/v1/chat/completions" };

describe("a gateway with a collector", () => {
  const collector = startTraceCollector();
  let gateway: ChatGateway;
  beforeAll(async () => {
    gateway = await startChatGateway({
      environment: {
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
        OTEL_EXPORTER_OTLP_HEADERS: "x-collector-key=abc",
        OTEL_TRACES_SAMPLER_ARG: "0",
      },
      models: { pair: ["primary/pair-a", "secondary/pair-b"] },
    });
    gateway.upstream.behave("pair-a", { do: "error", status: 500 });
    gateway.upstream.behave("pair-b", { do: "complete", content: "from b" });
  });
  afterAll(async () => {
    await gateway.stop();
    await collector.stop();
  });

  const chat = (traceparent: string | undefined, body: Record<string, unknown> = {}) =>
    gateway.chat("pair", body, traceparent === undefined ? {} : { headers: { traceparent } });
  const spansOf = async (traceId: string): Promise<CollectedSpan[]> => {
    const mine = () => collector.spans.filter((span) => span.traceId === traceId);
    await until("the trace", () => mine().some(({ kind }) => kind === 2));
    return mine();
  };

  test("gets a streamed call with a fallback as one trace below the caller's", async () => {
    const response = await chat(CALLER, {
      messages: [{ role: "user", content: "the secret plan" }],
      stream: true,
      session_id: "session-1",
      trace: {
        name: "nightly",
        attempt: 2,
        parts: ["a"],
        key: "gateway_sk_0123456789abcdef01234567",
      },
      metadata: { idempotency_key: "traced-1" },
    });
    expect((await readStream(response)).content).toBe("from b");
    const spans = await spansOf(TRACE_ID);
    const root = spans.find(({ kind }) => kind === 2)!;
    // A step that is waited for is a span, any other an event.
    const steps = [...root.events, ...spans.map(({ name }) => name)].toSorted();
    expect(steps).toEqual(
      [
        "POST /v1/chat/completions",
        "rate_limit",
        "claim",
        "hold",
        "chat pair-a",
        "chat pair-b",
        "checkpoint",
        "settle",
      ].toSorted(),
    );
    expect(root.parentSpanId).toBe("b7ad6b7169203331");
    for (const span of spans) {
      if (span !== root) expect(span.parentSpanId).toBe(root.spanId);
      expect(span.startNano).toBeGreaterThanOrEqual(root.startNano);
      expect(span.endNano).toBeLessThanOrEqual(root.endNano);
    }
    expect(root.isError).toBe(false);
    expect(root.attributes).toMatchObject({
      "http.route": "/v1/chat/completions",
      "http.response.status_code": 200,
      "gateway.organization_id": gateway.organizationId,
      "gen_ai.operation.name": "chat",
      "gen_ai.response.model": "test/pair",
      "gen_ai.provider.name": "secondary",
      "gen_ai.conversation.id": "session-1",
      "gateway.trace.name": "nightly",
      "gateway.trace.attempt": 2,
      "gateway.trace.parts": '["a"]',
    });
    expect(root.attributes["gateway.cost_usd"]).toBeGreaterThan(0);
    expect(root.attributes["gen_ai.usage.output_tokens"]).toBeGreaterThan(0);
    const failed = spans.find(({ name }) => name === "chat pair-a")!;
    expect(failed).toMatchObject({ kind: 3, isError: true, events: [] });
    expect(failed.attributes["error.type"]).toBe("unavailable");
    const answered = spans.find(({ name }) => name === "chat pair-b")!;
    expect(answered).toMatchObject({ kind: 3, isError: false, events: ["first_token"] });
    const served = gateway.upstream.served.filter(({ model }) => model.startsWith("pair-"));
    expect(served.map(({ headers }) => headers.traceparent)).toEqual(
      [failed, answered].map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`),
    );
    const sent = collector.requests.map(({ text }) => text).join();
    expect(sent).not.toContain("secret plan");
    expect(sent).not.toContain("0123456789abcdef01234567");
    expect(collector.requests[0]!.path).toBe("/v1/traces");
    expect(collector.requests[0]!.headers.get("x-collector-key")).toBe("abc");
  });

  test("gets no trace of a call that neither its caller nor the share samples, and the code of a refused one", async () => {
    const unsampled = TRACE_ID.replace("0af7", "1bf7");
    const refused = TRACE_ID.replace("0af7", "2cf7");
    const seen = gateway.upstream.served.length;
    for (const caller of [undefined, `00-${unsampled}-b7ad6b7169203331-00`, "nonsense"]) {
      const response = await chat(caller);
      expect(response.status).toBe(200);
      await response.text();
    }
    const untraced = gateway.upstream.served.slice(seen);
    expect(untraced.some(({ headers }) => headers.traceparent !== undefined)).toBe(false);
    const headers = { traceparent: CALLER.replace(TRACE_ID, refused) };
    expect((await gateway.chat("unknown", {}, { headers })).status).toBe(404);
    const [root] = await spansOf(refused);
    expect(root!.attributes).toMatchObject({
      "error.type": "model_not_found",
      "http.response.status_code": 404,
    });
    expect(root!.isError).toBe(false);
    // They leave in the order in which they ended.
    expect(new Set(collector.spans.map(({ traceId }) => traceId))).toEqual(
      new Set([TRACE_ID, refused]),
    );
  });
});

describe("the queue", () => {
  const silent = { warn() {}, info() {} } as never;
  const counters = new Map<string, () => number>();
  const tracingTo = (endpoint: string) =>
    new Tracing({
      config: { endpoint, headers: {}, sampleRatio: 1, serviceName: "test", withContent: false },
      instanceId: "ins_1",
      telemetry: { log: silent, counter: (name, _help, read) => void counters.set(name, read) },
    });
  const count = (what: string) => counters.get(`gateway_trace_spans_${what}_total`)!();

  test("drops and counts what a collector out of reach leaves in it, and its close does not wait", async () => {
    const tracing = tracingTo("http://127.0.0.1:1");
    for (let i = 0; i < 10_000; i++) tracing.begin(new Headers(), ROUTE)!.finish(RECORD);
    expect(count("dropped")).toBeGreaterThan(0);
    const startedMs = performance.now();
    await tracing.close(500);
    expect(performance.now() - startedMs).toBeLessThan(4_000);
    expect(count("exported")).toBe(0);
  });

  test("is emptied at the end", async () => {
    const collector = startTraceCollector();
    const tracing = tracingTo(collector.url);
    for (let i = 0; i < 100; i++) tracing.begin(new Headers(), ROUTE)!.finish(RECORD);
    await tracing.close(20_000);
    expect(new Set(collector.spans.map(({ traceId }) => traceId)).size).toBe(100);
    expect([count("exported"), count("dropped")]).toEqual([100, 0]);
    await collector.stop();
  });
});

describe("the prompt", () => {
  const recorded = (withContent: boolean, record: Partial<RequestRecord>) => {
    const spans: ReadableSpan[] = [];
    const resource = resourceFromAttributes({});
    const sink = {
      resource,
      withContent,
      newSpanId: () => "b7ad6b7169203331",
      add: (span: ReadableSpan) => void spans.push(span),
    };
    const trace = new RecordedTrace(sink, {
      traceId: TRACE_ID,
      parent: undefined,
      method: "POST",
      route: ROUTE.path,
    });
    trace.finish({ ...RECORD, ...record });
    return spans[0]!.attributes["gen_ai.input.messages"];
  };
  const asked = { messages: [{ role: "user", content: "hello" }] };

  test("is recorded only where the operator allows it", () => {
    expect(recorded(false, { asked })).toBeUndefined();
    expect(recorded(true, { asked })).toBe(JSON.stringify(asked.messages));
  });

  test("is cut, and left out where a guardrail has found something in it", () => {
    const long = { messages: [{ role: "user", content: "x".repeat(100_000) }] };
    expect((recorded(true, { asked: long }) as string).length).toBe(32_768);
    const hit = { guardrail: "g", type: "email", action: "redact", direction: "input" } as const;
    expect(recorded(true, { asked, guardrailHits: [hit] })).toBeUndefined();
  });
});

const RECORD: RequestRecord = {
  requestId: "req_1",
  method: "POST",
  route: ROUTE.path,
  status: 200,
  latencyMs: 1,
  organizationId: undefined,
  keyId: undefined,
  model: "test/a",
  provider: "primary",
  promptTokens: 1,
  completionTokens: 1,
  costNano: 1n,
  firstTokenMs: undefined,
  errorCode: undefined,
  cache: undefined,
};
