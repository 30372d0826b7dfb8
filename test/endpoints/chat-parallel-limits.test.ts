import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type Clock, systemClock } from "../../src/lib/clock.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";
import type { Behaviour } from "../upstream/behaviours.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

const KEY = "sk-provider-0123456789";
/** Nothing else waits as long, so the test decides when this time is up. */
const WAIT_MS = 80_000_000;
const TERMS = {
  category: "chat",
  context_length: 128_000,
  max_output_tokens: 4_096,
  input_cost_per_token: 1e-6,
  output_cost_per_token: 2e-6,
};
const HANG: Behaviour = { do: "stall" };

const waits = new Set<() => void>();
const clock: Clock = {
  nowMs: systemClock.nowMs,
  after(delayMs, run) {
    if (delayMs < WAIT_MS / 2) return systemClock.after(delayMs, run);
    waits.add(run);
    return () => waits.delete(run);
  },
};

let gateway: TestGateway;
let upstream: Upstream;

beforeAll(async () => {
  upstream = await startUpstream();
  const provider = (id: string, max?: number) => ({
    id,
    type: "openai-compatible",
    base_url: upstream.baseUrl,
    api_key: KEY,
    max_parallel_requests: max,
  });
  const model = (slug: string, endpoints: object[]) => ({
    id: `test/${slug}`,
    ...TERMS,
    endpoints,
  });
  gateway = await startTestGateway({
    clock,
    environment: { GATEWAY_UPSTREAM_FULL_TIMEOUT_MS: String(WAIT_MS) },
    configuration: {
      providers: [provider("free"), provider("two", 2), provider("spare", 1)],
      models: [
        model("first", [
          { provider: "free", model: "first", max_parallel_requests: 1 },
          { provider: "free", model: "second" },
        ]),
        model("alone", [{ provider: "free", model: "alone", max_parallel_requests: 1 }]),
        model("wide", [{ provider: "two", model: "wide" }]),
        model("narrow", [{ provider: "two", model: "narrow", max_parallel_requests: 1 }]),
        model("falling", [
          { provider: "free", model: "falling" },
          { provider: "spare", model: "fallen" },
        ]),
      ],
    },
  });
});
afterAll(async () => {
  await upstream.stop();
  await gateway.stop();
});
afterEach(() => expectBooksClosed(gateway));

const chat = (slug: string, body: object = {}, init: RequestInit = {}) =>
  gateway.request(
    "POST",
    "/v1/chat/completions",
    {
      model: `test/${slug}`,
      messages: [{ role: "user", content: "hello" }],
      route_explain: true,
      ...body,
    },
    init,
  );
const explained = (response: Response) => response.headers.get("x-gateway-route-explain");

/** Calls of a model that hang until they are let go, which ends them as their clients' doing. */
async function occupy(slug: string, upstreamModel = slug, calls = 1): Promise<() => Promise<void>> {
  const before = upstream.servedOf(upstreamModel).length;
  for (let i = 0; i < calls; i++) upstream.enqueue(upstreamModel, HANG);
  const client = new AbortController();
  const hanging = Array.from({ length: calls }, () =>
    chat(slug, {}, { signal: client.signal }).catch(() => undefined),
  );
  await until("the calls", () => upstream.servedOf(upstreamModel).length === before + calls);
  return async () => {
    client.abort();
    await Promise.all(hanging);
  };
}

describe("an endpoint that runs as many calls as it may", () => {
  test("is passed over for the next one, which route_explain says", async () => {
    const leave = await occupy("first");
    const response = await chat("first");
    expect(response.status).toBe(200);
    expect(explained(response)).toBe(
      "planned: free/first, free/second; tried: free/second=ok; full: free/first",
    );
    await leave();
    await until("its place", async () =>
      (explained(await chat("first")) ?? "").includes("free/first=ok"),
    );
  });

  test("has the call wait where there is no other, and serves it then", async () => {
    const leave = await occupy("alone");
    const waiting = chat("alone");
    await until("the wait", () => isWaiting(1));
    await leave();
    const response = await waiting;
    expect(response.status).toBe(200);
    expect(explained(response)).toBe("planned: free/alone; tried: free/alone=ok; full: free/alone");
    expect(await isWaiting(0)).toBeTrue();
  });

  test("lets a call wait for a bounded time: then it is 503 with Retry-After, and costs nothing", async () => {
    const leave = await occupy("alone");
    for (const stream of [false, true]) {
      const response = await waitInVain("alone", { stream });
      expect(response.headers.get("retry-after")).toBe("1");
      expect(explained(response)).toBe("planned: free/alone; tried: ; full: free/alone");
      await expectError(response, 503, "overloaded");
    }
    await leave();
  });

  test("forgets a call whose client leaves while it waits", async () => {
    const leave = await occupy("alone");
    const client = new AbortController();
    const waiting = chat("alone", {}, { signal: client.signal }).catch(() => undefined);
    await until("the wait", () => isWaiting(1));
    client.abort();
    await waiting;
    await until("the end of the wait", () => isWaiting(0));
    await leave();
    expect((await chat("alone")).status).toBe(200);
  });

  test("is waited for also where another one has failed", async () => {
    upstream.behave("falling", { do: "error", status: 500 });
    const leave = await occupy("falling", "fallen");
    const waiting = chat("falling");
    await until("the wait", () => isWaiting(1));
    await leave();
    const response = await waiting;
    expect(response.status).toBe(200);
    expect(explained(response)).toBe(
      "planned: free/falling, spare/fallen; tried: free/falling=unavailable, spare/fallen=ok; full: spare/fallen",
    );
  });
});

test("a provider's limit is shared by its models, and an endpoint's own holds within it", async () => {
  const leaveNarrow = await occupy("narrow");
  const leaveWide = await occupy("wide");
  expect((await waitInVain("wide")).status).toBe(503);
  await leaveWide();
  expect((await waitInVain("narrow")).status).toBe(503);
  expect((await chat("wide")).status).toBe(200);
  await leaveNarrow();
  expect((await chat("narrow")).status).toBe(200);
});

describe("a place is given back once, however a call ends:", () => {
  const ENDINGS: [string, Behaviour, number][] = [
    ["whole", { do: "complete" }, 200],
    ["an error", { do: "error", status: 400 }, 400],
    ["a failure and its retries", { do: "error", status: 500 }, 502],
    ["garbage", { do: "garbage-chunk" }, 502],
    ["a cut", { do: "cut" }, 502],
    ["absurd usage", { do: "absurd-usage", which: "negative" }, 200],
  ];
  for (const [name, behaviour, status] of ENDINGS) {
    for (const stream of [false, true]) {
      test(`${name}, ${stream ? "streamed" : "not streamed"}`, async () => {
        upstream.behave("alone", behaviour);
        const response = await chat("alone", { stream });
        if (response.status !== 200 || !stream) expect(response.status).toBe(status);
        await response.text();
        await expectAllFree();
      });
    }
  }

  test("by a client that leaves, before the first byte and behind it", async () => {
    for (const behaviour of [HANG, { do: "stall-after-events", afterEvents: 3 } as Behaviour]) {
      upstream.behave("alone", behaviour);
      const before = upstream.servedOf("alone").length;
      const client = new AbortController();
      const response = chat("alone", { stream: true }, { signal: client.signal });
      const read = async ({ body }: Response) => {
        for await (const _ of body!) client.abort();
      };
      const reading = response.then(read).catch(() => undefined);
      await until("the call", () => upstream.servedOf("alone").length > before);
      if (behaviour === HANG) client.abort();
      await reading;
      await expectAllFree();
    }
  });

  /** One call runs, and a second finds no place: neither too few places nor too many were given back. */
  async function expectAllFree(): Promise<void> {
    upstream.behave("alone", { do: "complete" });
    await until("the place", async () => (await isWaiting(0)) && (await inFlight()) === 0);
    const leave = await occupy("alone");
    const waiting = chat("alone", { stream: true });
    await until("the wait", () => isWaiting(1));
    await leave();
    expect((await readStream(await waiting)).isDone).toBeTrue();
  }
});

/** A call whose time for waiting is up. */
async function waitInVain(slug: string, body: object = {}): Promise<Response> {
  const response = chat(slug, body);
  await until("the wait", () => isWaiting(1));
  for (const run of [...waits]) run();
  return await response;
}

async function isWaiting(calls: number): Promise<boolean> {
  const metrics = await (await gateway.request("GET", "/metrics")).text();
  return metrics.includes(`\ngateway_calls_waiting ${calls}\n`);
}

/** Requests other than this one. */
async function inFlight(): Promise<number> {
  const metrics = await (await gateway.request("GET", "/metrics")).text();
  return Number(/\ngateway_requests_in_flight (\d+)/.exec(metrics)?.[1]) - 1;
}
