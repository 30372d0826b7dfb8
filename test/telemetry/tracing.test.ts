import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { RequestRecord } from "../../src/platform/telemetry/interface.ts";
import { RecordedTrace } from "../../src/platform/telemetry/request-trace.ts";
import type { EndedSpan } from "../../src/platform/telemetry/span-batch.ts";
import { Tracing } from "../../src/platform/telemetry/tracing.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { type CollectedSpan, startOtlpCollector } from "../support/otlp-collector.ts";
import { startSearchUpstream } from "../support/search-upstream.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";

const TRACE_ID = "0af7651916cd43dd8448eb211c80319c";
const CALLER = `00-${TRACE_ID}-b7ad6b7169203331-01`;
const ROUTE = { method: "POST", path: "/v1/chat/completions" };

describe("a gateway with a collector", () => {
  const collector = startOtlpCollector();
  const searches = startSearchUpstream();
  let gateway: ChatGateway;
  beforeAll(async () => {
    gateway = await startChatGateway({
      environment: {
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
        OTEL_EXPORTER_OTLP_HEADERS: "x-collector-key=abc",
        OTEL_TRACES_SAMPLER_ARG: "0",
        GATEWAY_SEARCH_BACKEND: "brave",
        GATEWAY_SEARCH_URL: searches.url,
        GATEWAY_SEARCH_API_KEY: "search-secret-0123456789",
        GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
      },
      models: { pair: ["primary/pair-a", "secondary/pair-b"] },
    });
    gateway.upstream.behave("pair-a", { do: "error", status: 500 });
    gateway.upstream.behave("pair-b", { do: "complete", content: "from b" });
  });
  afterAll(async () => {
    await gateway.stop();
    await collector.stop();
    await searches.stop();
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

  test("gets a span of each call of a loop of tools, and of each tool between them", async () => {
    const traceId = TRACE_ID.replace("0af7", "3df7");
    const slug = gateway.modelThat(
      {
        do: "complete",
        toolCalls: [{ name: "web_search", arguments: JSON.stringify({ query: "harbour" }) }],
      },
      { do: "complete", content: "At six." },
    );
    const body = { model: `test/${slug}`, input: "When?", tools: [{ type: "web_search" }] };
    const headers = { traceparent: CALLER.replace(TRACE_ID, traceId) };
    const response = await gateway.request("POST", "/v1/responses", body, { headers });
    expect(response.status).toBe(200);
    await response.text();
    const spans = await spansOf(traceId);
    const root = spans.find(({ kind }) => kind === 2)!;
    const steps = spans
      .filter(({ name }) => name === `chat ${slug}` || name.startsWith("execute_tool"))
      .toSorted((one, other) => (one.startNano < other.startNano ? -1 : 1));
    expect(steps.map(({ name }) => name)).toEqual([
      `chat ${slug}`,
      "execute_tool web_search",
      `chat ${slug}`,
    ]);
    expect(steps.map(({ parentSpanId }) => parentSpanId)).toEqual(Array(3).fill(root.spanId));
    // Each has ended before the next one begins.
    expect(steps[0]!.endNano).toBeLessThanOrEqual(steps[1]!.startNano);
    expect(steps[1]!.endNano).toBeLessThanOrEqual(steps[2]!.startNano);
    expect(steps[1]!.attributes).toMatchObject({
      "gen_ai.operation.name": "execute_tool",
      "gen_ai.tool.name": "web_search",
    });
    expect(steps[2]!.attributes["gen_ai.usage.output_tokens"]).toBeGreaterThan(0);
    const served = gateway.upstream.served.filter(({ model }) => model === slug);
    expect(served.map(({ headers }) => headers.traceparent)).toEqual(
      [steps[0]!, steps[2]!].map(({ spanId }) => `00-${traceId}-${spanId}-01`),
    );
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
    // Each fails over. The caller's own decision goes on to the provider.
    const passed = `00-${unsampled}-b7ad6b7169203331-00`;
    const untraced = gateway.upstream.served.slice(seen).map(({ headers }) => headers.traceparent);
    expect(untraced.filter((header) => header !== undefined).length).toBeGreaterThan(0);
    expect(new Set(untraced)).toEqual(new Set([undefined, passed]));
    const headers = { traceparent: CALLER.replace(TRACE_ID, refused) };
    expect((await gateway.chat("unknown", {}, { headers })).status).toBe(404);
    const [root] = await spansOf(refused);
    expect(root!.attributes).toMatchObject({
      "error.type": "model_not_found",
      "http.response.status_code": 404,
    });
    expect(root!.isError).toBe(false);
    // They leave in the order in which they ended.
    const callers = new Set([TRACE_ID, TRACE_ID.replace("0af7", "3df7"), refused]);
    expect(new Set(collector.spans.map(({ traceId }) => traceId))).toEqual(callers);
  });
});

describe("the queue", () => {
  const silent = { warn() {}, info() {} } as never;
  const counters = new Map<string, () => number>();
  const tracingTo = (url: string) =>
    new Tracing({
      config: { url, headers: {}, sampleRatio: 1, serviceName: "test", withContent: false },
      instanceId: "ins_1",
      telemetry: { log: silent, counter: (name, _help, read) => void counters.set(name, read) },
    });
  const count = (what: string) => counters.get(`gateway_trace_spans_${what}_total`)!();

  test("drops and counts what a collector out of reach leaves in it, and its close does not wait", async () => {
    const tracing = tracingTo("http://127.0.0.1:1/v1/traces");
    for (let i = 0; i < 50_000; i++) tracing.begin(new Headers(), ROUTE)!.finish(RECORD);
    expect(count("dropped")).toBeGreaterThan(0);
    const startedMs = performance.now();
    await tracing.close(500);
    expect(performance.now() - startedMs).toBeLessThan(4_000);
    expect(count("exported")).toBe(0);
  });

  test("goes on with the next export where a collector's answer does not end", async () => {
    const collector = startOtlpCollector({ trickles: true });
    const tracing = tracingTo(`${collector.url}/v1/traces`);
    tracing.begin(new Headers(), ROUTE)!.finish(RECORD);
    await tracing.close(20_000);
    expect(collector.spans.length).toBeGreaterThan(0);
    expect([count("exported"), count("dropped")]).toEqual([collector.spans.length, 0]);
    await collector.stop();
  }, 60_000);

  test("repeats what a collector asks to have repeated, and drops what it refuses", async () => {
    const statuses = [503, 400];
    const collector = startOtlpCollector({ statuses });
    const tracing = tracingTo(`${collector.url}/v1/traces`);
    tracing.begin(new Headers(), ROUTE)!.finish(RECORD);
    await tracing.close(20_000);
    expect(statuses).toEqual([]);
    expect([count("exported"), count("dropped")]).toEqual([0, 1]);
    await collector.stop();
  }, 60_000);

  test("is emptied at the end", async () => {
    const collector = startOtlpCollector();
    const tracing = tracingTo(`${collector.url}/v1/traces`);
    for (let i = 0; i < 100; i++) tracing.begin(new Headers(), ROUTE)!.finish(RECORD);
    await tracing.close(20_000);
    expect(new Set(collector.spans.map(({ traceId }) => traceId)).size).toBe(100);
    expect([count("exported"), count("dropped")]).toEqual([100, 0]);
    await collector.stop();
  });
});

describe("the prompt", () => {
  const recorded = (withContent: boolean, record: Partial<RequestRecord>) => {
    let root: EndedSpan | undefined;
    const sink = {
      withContent,
      newSpanId: () => "b7ad6b7169203331",
      add: (_traceId: string, spans: readonly EndedSpan[]) => {
        root = spans[0];
      },
    };
    const trace = new RecordedTrace(sink, {
      traceId: TRACE_ID,
      parentSpanId: undefined,
      method: "POST",
      route: ROUTE.path,
    });
    trace.finish({ ...RECORD, ...record });
    return root!.endAttributes!["gen_ai.input.messages"];
  };
  const asked = { messages: [{ role: "user", content: "hello" }] };

  test("is recorded only where the operator allows it", () => {
    expect(recorded(false, { request: asked })).toBeUndefined();
    expect(recorded(true, { request: asked })).toBe(JSON.stringify(asked.messages));
  });

  test("is cut, and left out where a guardrail has found something in it", () => {
    const long = { messages: [{ role: "user", content: "x".repeat(100_000) }] };
    expect((recorded(true, { request: long }) as string).length).toBe(32_768);
    const hit = { guardrail: "g", type: "email", action: "redact", direction: "input" } as const;
    expect(recorded(true, { request: asked, guardrailHits: [hit] })).toBeUndefined();
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

test("a gateway without a collector passes the caller's traceparent on, if it is valid", async () => {
  const gateway = await startChatGateway();
  try {
    const slug = gateway.modelThat({ do: "complete" });
    const sent = async (traceparent: string, stream: boolean) => {
      await (await gateway.chat(slug, { stream }, { headers: { traceparent } })).text();
      return gateway.upstream.served.at(-1)!.headers.traceparent;
    };
    for (const stream of [false, true]) {
      for (const header of [CALLER, CALLER.replace(/01$/, "00")]) {
        expect(await sent(header, stream)).toBe(header);
      }
      for (const wrong of ["nonsense", CALLER.slice(1), CALLER.replace(TRACE_ID, "0".repeat(32))]) {
        expect(await sent(wrong, stream)).toBeUndefined();
      }
    }
  } finally {
    await gateway.stop();
  }
});
