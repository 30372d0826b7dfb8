import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { type BuiltInGateway, startBuiltInGateway } from "../support/built-in-gateway.ts";
import { billOf, expectBooksClosed, gauge, logLineOf } from "../support/ledger-checks.ts";
import { until } from "../support/until.ts";
import type { Served } from "../upstream/served.ts";

const MODEL = "openai/gpt-4o-mini";
const UPSTREAM_MODEL = "gpt-4o-mini";
const MESSAGES: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "hello" }];
/** "At once": what a busy machine may need for a connection's end to be noticed. */
const AT_ONCE_MS = 500;

let gateway: BuiltInGateway;
let openai: OpenAI;
beforeAll(async () => {
  gateway = await startBuiltInGateway();
  openai = new OpenAI({ apiKey: gateway.secretKey, baseURL: gateway.apiUrl, maxRetries: 0 });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

/** What a call fails with. */
const failureOf = (asked: PromiseLike<unknown>): Promise<unknown> =>
  Promise.resolve(asked).then(
    () => undefined,
    (error: unknown) => error,
  );

async function expectAbortedAtOnce(sinceMs: number): Promise<Served> {
  await gateway.upstream.until((list) => list.at(-1)?.aborted === true, AT_ONCE_MS);
  expect(Date.now() - sinceMs).toBeLessThan(AT_ONCE_MS);
  return gateway.upstream.served.at(-1)!;
}

describe("a stream that is aborted in the middle", () => {
  const ABORTS: [name: string, abort: (stream: Aborted) => void][] = [
    ["through its controller", (stream) => stream.controller.abort()],
    ["by leaving the loop", () => {}],
  ];
  type Aborted = Awaited<ReturnType<typeof openStream>>["data"];
  const openStream = () =>
    openai.chat.completions
      .create({ model: MODEL, messages: MESSAGES, stream: true })
      .withResponse();

  test.each(ABORTS)(
    "%s: stops the provider at once, is charged for what came, and is logged as 499",
    async (_, abort) => {
      gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "complete", events: 2_000, delayMs: 5 });
      const { data: stream, request_id: requestId } = await openStream();
      let pieces = 0;
      let abortedMs = 0;
      for await (const chunk of stream) {
        if (chunk.choices[0]!.delta.content) pieces++;
        if (pieces < 20) continue;
        abortedMs = Date.now();
        abort(stream);
        break;
      }
      const served = await expectAbortedAtOnce(abortedMs);
      expect(served.finished).toBeFalse();
      const bill = await until("the charge", () => billOf(gateway, requestId!));
      expect(bill).toMatchObject({ status: 499, estimated: true, model: MODEL });
      // Each piece is a token; what was on its way when the client left may be billed too.
      expect(bill.completionTokens).toBeGreaterThanOrEqual(pieces);
      expect(bill.completionTokens).toBeLessThanOrEqual(served.eventsSent);
      expect(bill.promptTokens).toBePositive();
      expect(await logLineOf(gateway, requestId!)).toMatchObject({
        status: 499,
        error_code: "client_closed_request",
        completion_tokens: bill.completionTokens,
        cost_usd: Number(bill.chargeNano) / 1e9,
      });
    },
  );

  test("is counted as 499 in the metrics, and no stream is left running", async () => {
    const metrics = await gateway.telemetry.metrics();
    expect(metrics).toMatch(/gateway_requests_total\{[^}]*status="499"[^}]*\} 2\n/);
    await until(
      "no stream is running",
      async () => (await gauge(gateway, "gateway_streams_running")) === 0,
    );
  });
});

describe("a stream that is left at its finish reason", () => {
  const USAGE = { prompt_tokens: 10, completion_tokens: 5_000, total_tokens: 5_010 };
  const choice = (delta: object, finish_reason: string | null) => ({
    choices: [{ index: 0, delta, finish_reason }],
  });
  const ANSWER = [choice({ content: "hi" }, null), choice({}, "stop")];

  async function leave(frames: unknown[]) {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "frames", frames, delayMs: 100 });
    const { data: stream, request_id: requestId } = await openai.chat.completions
      .create({ model: MODEL, messages: MESSAGES, stream: true })
      .withResponse();
    for await (const chunk of stream) if (chunk.choices[0]!.finish_reason !== null) break;
    return until("the charge", () => billOf(gateway, requestId!));
  }

  test("is charged what the provider tells behind that", async () => {
    const bill = await leave([...ANSWER, { choices: [], usage: USAGE }, "data: [DONE]\n\n"]);
    expect(bill).toMatchObject({ status: 499, estimated: false, completionTokens: 5_000 });
  });

  test("is charged what was counted here where the provider tells nothing more", async () => {
    const bill = await leave([...ANSWER, "data: [DONE]\n\n"]);
    expect(bill).toMatchObject({ status: 499, estimated: true, completionTokens: 1 });
  });

  test("waits no longer than a second or so for a provider that goes on without telling it", async () => {
    const silent = Array.from({ length: 40 }, () => ": nothing\n\n");
    const bill = await leave([...ANSWER, ...silent, { choices: [], usage: USAGE }]);
    expect(bill).toMatchObject({ status: 499, estimated: true, completionTokens: 1 });
    await gateway.upstream.until((list) => list.at(-1)?.aborted === true);
  });
});

describe("a call that is aborted before anything came", () => {
  test.each([false, true])(
    "stops the provider at once, costs nothing, and is logged as 499; streamed: %p",
    async (stream) => {
      gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "stall" });
      const callsBefore = gateway.upstream.served.length;
      const loggedBefore = gateway.logLines.length;
      const abort = new AbortController();
      const failure = failureOf(
        openai.chat.completions.create(
          { model: MODEL, messages: MESSAGES, stream },
          { signal: abort.signal },
        ),
      );
      await gateway.upstream.until((list) => list.length > callsBefore);
      const abortedMs = Date.now();
      abort.abort();
      expect(await failure).toBeInstanceOf(OpenAI.APIUserAbortError);
      await expectAbortedAtOnce(abortedMs);
      const line = await until("its log line", () =>
        gateway.logLines.slice(loggedBefore).find((text) => text.includes('"msg":"request"')),
      );
      const logged = JSON.parse(line) as { status: number; request_id: string; cost_usd?: number };
      expect(logged.status).toBe(499);
      expect(logged.cost_usd ?? 0).toBe(0);
      expect(await billOf(gateway, logged.request_id)).toBeUndefined();
    },
  );

  test("by the client's own timeout, too", async () => {
    gateway.upstream.enqueue(UPSTREAM_MODEL, { do: "stall" });
    const asked = openai.chat.completions.create(
      { model: MODEL, messages: MESSAGES },
      { timeout: 100 },
    );
    expect(await failureOf(asked)).toBeInstanceOf(OpenAI.APIConnectionTimeoutError);
    await gateway.upstream.until((list) => list.at(-1)?.aborted === true);
  });
});
