import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, chargeNano, startChatGateway } from "../support/chat-gateway.ts";
import { expectEnvelope, expectError } from "../support/error-envelope.ts";
import { billOf, billOfResponse, expectBooksClosed, logLineOf } from "../support/ledger-checks.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { readStream } from "../support/stream-reader.ts";
import type { Behaviour } from "../upstream/behaviours.ts";
import type { Served } from "../upstream/served.ts";

const TOTAL_MS = 900;
const FIRST_TOKEN_MS = 300;
const IDLE_MS = 250;
/** So many failures of one endpoint open its circuit. */
const CALLS_TO_OPEN = 10;
/** What the machine may be late by, besides the waiting for a processor. */
const SLACK_MS = 2_000;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({
    models: { unresponsive: ["primary/unresponsive-a", "secondary/unresponsive-b"] },
    environment: {
      GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS: String(TOTAL_MS),
      GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS: String(FIRST_TOKEN_MS),
      GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS: String(IDLE_MS),
    },
  });
});
afterAll(() => gateway.stop());

async function servedOf(slug: string): Promise<Served> {
  const isOver = ({ model, endedAtMs }: Served) => model === slug && endedAtMs !== null;
  await gateway.upstream.until((list) => list.some(isOver));
  const served = gateway.upstream.servedOf(slug);
  expect(served).toHaveLength(1);
  return served[0]!;
}

/** 408 that no client should send again, after that time; the provider's call is ended, nothing is charged. */
async function expectTimeout(
  behaviour: Behaviour,
  body: Record<string, unknown>,
  afterMs: number,
): Promise<void> {
  const slug = gateway.modelThat(behaviour);
  const startedMs = performance.now();
  const elapsedMs = startStopwatch();
  const response = await gateway.chat(slug, body);
  const ownMs = elapsedMs();
  const tookMs = performance.now() - startedMs;
  const { error, request_id } = await expectError(response, 408, "provider_timeout");
  expect(error.type).toBe("timeout_error");
  expect(response.headers.get("x-should-retry")).toBe("false");
  expect(tookMs).toBeGreaterThanOrEqual(afterMs - 20);
  expect(ownMs).toBeLessThan(afterMs + SLACK_MS);
  expect((await servedOf(slug)).aborted).toBeTrue();
  expect(await billOf(gateway, request_id)).toBeUndefined();
}

describe("an unstreamed answer that does not come within the total timeout is 408", () => {
  test.concurrent("when nothing comes", () => expectTimeout({ do: "stall" }, {}, TOTAL_MS));
  test.concurrent("when half of it comes", () =>
    expectTimeout({ do: "stall-after-events" }, {}, TOTAL_MS));
  test.concurrent("when it comes without end", () =>
    expectTimeout({ do: "endless", delayMs: 5 }, {}, TOTAL_MS));
});

test("an endpoint that does not answer in time is the one to blame, and after some such calls comes last", async () => {
  const slug = "unresponsive";
  gateway.upstream.behave(`${slug}-a`, { do: "stall" });
  gateway.upstream.behave(`${slug}-b`, { do: "complete" });
  const ask = () => gateway.chat(slug, { route_explain: true });
  const refused = await Promise.all(Array.from({ length: CALLS_TO_OPEN }, ask));
  for (const response of refused) {
    await expectError(response, 408, "provider_timeout");
    expect(response.headers.get("x-gateway-route-explain")).toEndWith(
      `tried: primary/${slug}-a=timeout; not needed: secondary/${slug}-b`,
    );
  }
  const answered = await ask();
  expect(answered.status).toBe(200);
  expect(answered.headers.get("x-gateway-provider")).toBe("secondary");
});

describe("a stream whose first token does not come within its timeout is 408", () => {
  const streamed = { stream: true };
  test.concurrent("when nothing comes", () =>
    expectTimeout({ do: "stall" }, streamed, FIRST_TOKEN_MS));
  test.concurrent("when the answer begins too late", () =>
    expectTimeout({ do: "complete", firstDelayMs: TOTAL_MS }, streamed, FIRST_TOKEN_MS));
  test.concurrent("when its role comes, and nothing behind it", () =>
    expectTimeout({ do: "stall-after-events", afterEvents: 1 }, streamed, FIRST_TOKEN_MS));
});

describe("a stream that has begun and goes wrong ends with an error frame, is stopped at the provider, and is billed", () => {
  async function brokenStream(behaviour: Behaviour, code: string, body = {}) {
    const slug = gateway.modelThat(behaviour);
    const startedMs = performance.now();
    const elapsedMs = startStopwatch();
    const response = await gateway.chat(slug, { stream: true, ...body });
    expect(response.status).toBe(200);
    const read = await readStream(response);
    const ownMs = elapsedMs();
    const tookMs = performance.now() - startedMs;
    expect(read.isDone).toBeFalse();
    expectEnvelope(read.error);
    expect(read.error!.error.code).toBe(code);
    const served = await servedOf(slug);
    expect(served.aborted).toBeTrue();
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ estimated: true, status: 200 });
    expect(await logLineOf(gateway, read.error!.request_id)).toMatchObject({
      status: 200,
      error_code: code,
      cost_usd: Number(bill.chargeNano) / 1e9,
    });
    return { read, served, bill, tookMs, ownMs };
  }

  test.concurrent("when the provider falls silent", async () => {
    const { read, bill, tookMs, ownMs } = await brokenStream(
      { do: "stall-after-events", events: 8, afterEvents: 5 },
      "provider_timeout",
    );
    expect(read.content).toBe("w000000 w000001 w000002 w000003 ");
    expect(bill.completionTokens).toBe(4);
    expect(bill.chargeNano).toBe(chargeNano({ prompt: bill.promptTokens, completion: 4 }));
    expect(tookMs).toBeGreaterThanOrEqual(IDLE_MS - 20);
    expect(ownMs).toBeLessThan(IDLE_MS + SLACK_MS);
  });

  const text = (content: string) => ({
    choices: [{ index: 0, delta: { content }, finish_reason: null }],
  });
  const WITHOUT_EVENTS: [string, Behaviour][] = [
    [
      "nothing but comments",
      {
        do: "frames",
        frames: [text("a"), ...Array.from({ length: 40 }, () => ": keepalive\n\n")],
        delayMs: 50,
      },
    ],
    [
      "an event that does not come to its end",
      {
        do: "frames",
        frames: [text("a"), "data: ", ...Array.from({ length: 40 }, () => " ")],
        delayMs: 50,
      },
    ],
  ];
  test.concurrent.each(WITHOUT_EVENTS)("when the provider sends %s", async (_what, behaviour) => {
    const { read, bill, tookMs, ownMs } = await brokenStream(behaviour, "provider_timeout");
    expect(read.content).toBe("a");
    expect(bill.completionTokens).toBe(1);
    expect(tookMs).toBeGreaterThanOrEqual(IDLE_MS - 20);
    expect(ownMs).toBeLessThan(TOTAL_MS - 20);
  });

  test.concurrent("when a slow stream has no end", async () => {
    const { read, bill, tookMs, ownMs } = await brokenStream(
      { do: "endless", delayMs: 40 },
      "provider_timeout",
    );
    expect(read.content).toMatch(/^x{1024,}$/);
    // What came in but could not be delivered any more may be one piece.
    const deliveredTokens = read.content.length / 4;
    expect(bill.completionTokens).toBeGreaterThanOrEqual(deliveredTokens);
    expect(bill.completionTokens).toBeLessThanOrEqual(deliveredTokens + 256);
    expect(tookMs).toBeGreaterThanOrEqual(TOTAL_MS - 20);
    expect(ownMs).toBeLessThan(TOTAL_MS + SLACK_MS);
  });

  test.concurrent("when a fast stream goes on far beyond its limit of tokens", async () => {
    const { read, served, bill, ownMs } = await brokenStream({ do: "endless" }, "provider_error", {
      max_tokens: 100,
    });
    expect(read.error!.error.message).toContain("limit");
    expect(ownMs).toBeLessThan(TOTAL_MS);
    expect(served.finished).toBeFalse();
    // Its limit of bytes, and at most what one read and the look ahead had brought by then.
    expect(read.content.length).toBeLessThanOrEqual(100 * 64 + 65_536 + 1_048_576);
    // Never above the hold: 29 tokens of prompt at most, and the 100 that were asked for.
    const holdNano = chargeNano({ prompt: 5 + 8 + 16, completion: 100 });
    expect(bill.chargeNano <= holdNano + 1n).toBeTrue();
  });
});

test("a stream within its timeouts is left alone, however long it takes in all", async () => {
  const slug = gateway.modelThat({ do: "complete", events: 5, delayMs: 60 });
  const read = await readStream(await gateway.chat(slug, { stream: true }));
  expect(read.isDone).toBeTrue();
  expect(read.content).toBe("w000000 w000001 w000002 w000003 w000004 ");
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
