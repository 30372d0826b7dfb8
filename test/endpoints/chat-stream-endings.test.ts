import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChatGateway, chargeNano, startChatGateway } from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed, logLineOf } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

const IDLE_MS = 300;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({
    environment: { GATEWAY_UPSTREAM_IDLE_TIMEOUT_MS: String(IDLE_MS) },
  });
});
afterAll(() => gateway.stop());

const chunk = (index: number, content: string, finish_reason: string | null = null) => ({
  choices: [{ index, delta: { content }, finish_reason }],
});
const USAGE = { choices: [], usage: { prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 } };
/** Longer than the idle timeout behind the last frame, also on a busy machine. */
const SILENCE = { delayMs: 10_000 };

/** All frames at once, and then nothing. */
const frames = (...all: unknown[]): Behaviour => ({
  do: "frames",
  frames: [
    all.map((one) => (typeof one === "string" ? one : `data: ${JSON.stringify(one)}\n\n`)).join(""),
  ],
  ...SILENCE,
});

async function streamOf(behaviour: Behaviour, body: Record<string, unknown> = {}) {
  const slug = gateway.modelThat(behaviour);
  const startedMs = performance.now();
  const response = await gateway.chat(slug, {
    stream: true,
    stream_options: { include_usage: true },
    ...body,
  });
  const read = await readStream(response);
  const tookMs = performance.now() - startedMs;
  const isOver = ({ model, endedAtMs }: { model: string; endedAtMs: number | null }) =>
    model === slug && endedAtMs !== null;
  await gateway.upstream.until((list) => list.some(isOver));
  const bill = await billOfResponse(gateway, response);
  const log = await logLineOf(gateway, response.headers.get("x-gateway-request-id")!);
  return { read, bill, log, tookMs, served: gateway.upstream.servedOf(slug) };
}

const EVERYTHING = [chunk(0, "ab"), chunk(0, "cd", "stop"), USAGE];
test.each([
  ["and says nothing more", frames(...EVERYTHING)],
  [
    "and sends nothing but comments",
    { do: "frames", delayMs: 60, frames: [...EVERYTHING, ...Array(200).fill(": ping\n\n")] },
  ],
  ["and a [DONE] without its blank line", frames(...EVERYTHING, "data: [DONE]")],
] as [string, Behaviour][])(
  "a provider that ends its answer %s is waited for no longer than the idle timeout, and has answered",
  async (_how, behaviour) => {
    const { read, bill, log, tookMs, served } = await streamOf(behaviour);
    expectStreamShape(read, { model: `test/${served[0]!.model}`, includesUsage: true });
    expect([read.isDone, read.error, read.content]).toEqual([true, undefined, "abcd"]);
    expect(read.finishReason).toBe("stop");
    expect(read.usage).toMatchObject(USAGE.usage);
    expect(bill).toMatchObject({ estimated: false, promptTokens: 7, completionTokens: 2 });
    expect(bill.chargeNano).toBe(chargeNano({ prompt: 7, completion: 2 }));
    expect(log).toMatchObject({ status: 200 });
    expect(log).not.toHaveProperty("error_code");
    expect(tookMs).toBeGreaterThanOrEqual(IDLE_MS - 20);
    expect(tookMs).toBeLessThan(SILENCE.delayMs);
    expect(served).toHaveLength(1);
    expect(served[0]!.aborted).toBeTrue();
  },
);

test("usage that comes late behind the answer, but in time, is what is billed", async () => {
  const { read, bill } = await streamOf({
    do: "frames",
    delayMs: 120,
    frames: [chunk(0, "ab", "stop"), ": ping\n\n", USAGE, ": ping\n\n", "data: [DONE]\n\n"],
  });
  expect(read.isDone).toBeTrue();
  expect(bill).toMatchObject({ estimated: false, promptTokens: 7, completionTokens: 2 });
});

test("an answer that ends without usage and in silence is counted here", async () => {
  const { read, bill } = await streamOf(frames(chunk(0, "ab"), chunk(0, "cd", "stop")));
  expect([read.isDone, read.content]).toEqual([true, "abcd"]);
  expect(bill).toMatchObject({ estimated: true, completionTokens: 2 });
});

test("a connection that breaks off behind the end of the answer takes nothing from it", async () => {
  const { read, bill, log, served } = await streamOf({
    do: "cut",
    events: 3,
    afterEvents: Number.POSITIVE_INFINITY,
  });
  expect([read.isDone, read.error]).toEqual([true, undefined]);
  expect(bill.estimated).toBeFalse();
  expect(log).not.toHaveProperty("error_code");
  expect(served).toHaveLength(1);
});

test.each([
  [
    "silence before every choice has ended",
    frames(chunk(0, "a"), chunk(1, "b"), chunk(0, "", "stop")),
    "provider_timeout",
  ],
  [
    "silence before every choice has begun",
    frames(chunk(0, "a", "stop"), USAGE),
    "provider_timeout",
  ],
  [
    "a break before every choice has begun",
    { do: "cut", events: 2, afterEvents: 3 },
    "provider_error",
  ],
] as [string, Behaviour, string][])(
  "of two answers that were asked for, %s is a failure",
  async (_what, behaviour, code) => {
    const { read } = await streamOf(behaviour, { n: 2 });
    expect(read.isDone).toBeFalse();
    expect(read.error?.error.code).toBe(code);
  },
);

test("an error behind the end of the answer is still told", async () => {
  const { read } = await streamOf(
    frames(chunk(0, "a", "stop"), { error: { message: "lost", type: "server_error" } }),
  );
  expect([read.isDone, read.error?.error.code]).toEqual([false, "provider_error"]);
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
