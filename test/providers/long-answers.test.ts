import { afterAll, expect, test } from "bun:test";
import { FairWorkThread } from "../../src/lib/work-thread.ts";
import { type ClientCompletion, ProviderFailure } from "../../src/providers/interface.ts";
import { MAX_QUICK_ANSWER_BYTES } from "../../src/providers/transport/bounded-body.ts";
import { passedOf } from "../support/chat-answers.ts";
import { measureLoopHold } from "../support/loop-hold.ts";
import { adapter, callOf, serve } from "./openai-adapter.ts";

/** Answers that a work thread parses, because they are too long for the event loop. */

const workThread = new FairWorkThread({
  script: new URL("../../src/main/compose/long-work-thread.ts", import.meta.url),
  deadlineMs: 20_000,
  maxWaiting: 100,
  maxWaitingOfOne: 100,
  maxWaitMs: 20_000,
  onLost: () => {},
});
afterAll(() => workThread.close());

const OPTIONS = { requestId: "req_0123456789abcdef", hidesReasoning: false, nowSeconds: 1_000 };

async function read(
  baseUrl: string,
  model = "m",
  hidesReasoning = false,
): Promise<ClientCompletion> {
  const answer = await adapter(baseUrl, { workThread }).chat(callOf(model));
  return passedOf(answer, { ...OPTIONS, hidesReasoning });
}

/** Without the members that the caller sets. */
function bodyOf({ body }: ClientCompletion): unknown {
  const {
    id: _,
    model: __,
    usage: ___,
    ...rest
  } = (body instanceof Uint8Array ? JSON.parse(new TextDecoder().decode(body)) : body) as Record<
    string,
    unknown
  >;
  return JSON.parse(JSON.stringify(rest));
}

const failureOf = async (reading: Promise<unknown>) => {
  const error = await reading.catch((thrown: unknown) => thrown);
  if (!(error instanceof ProviderFailure)) throw new Error(`no failure: ${error}`);
  const { kind, message, status, param, isTooLong } = error;
  return { kind, message, status, param, isTooLong };
};

const message = {
  role: "assistant",
  content: [
    { type: "thinking", thinking: "hm é" },
    { type: "text", text: "Grüße 👋" },
  ],
  tool_calls: [{ function: { name: "look", arguments: { at: "the sky" } } }],
};
const completion = (fields: object = {}) => ({
  id: "theirs",
  object: "chat.completion",
  created: 5,
  model: "theirs",
  choices: [{ index: 0, message, finish_reason: "model_length" }],
  usage: { prompt_tokens: 7, completion_tokens: 9, total_tokens: 16 },
  ...fields,
});

/** White space makes any answer long. */
const PADDING = " ".repeat(MAX_QUICK_ANSWER_BYTES);

test.each([
  ["an answer with reasoning and a tool call", completion()],
  ["an answer without usage", completion({ usage: undefined })],
  ["two choices", completion({ choices: [0, 1].map((index) => ({ index, message })) })],
  ["members of the provider's own", completion({ x_groq: { id: 1 }, citations: ["a"] })],
])("%s is the same to the client, long or short", async (_, answer) => {
  const json = JSON.stringify(answer);
  let isLong = false;
  await using server = serve(() => new Response(isLong ? json + PADDING : json));
  for (const hidesReasoning of [false, true]) {
    isLong = false;
    const short = await read(server.baseUrl, "m", hidesReasoning);
    isLong = true;
    const long = await read(server.baseUrl, "m", hidesReasoning);
    expect(short.body).not.toBeInstanceOf(Uint8Array);
    expect(long.body).toBeInstanceOf(Uint8Array);
    expect(bodyOf(long)).toEqual(bodyOf(short));
    expect({ ...long, body: null }).toEqual({ ...short, body: null });
  }
});

test.each([
  ["an error in place of an answer", JSON.stringify({ error: { message: "sorry", code: 429 } })],
  ["no JSON", "{nothing"],
  ["no object", "[]"],
  ["no choices", "{}"],
  [
    "an answer that was broken off",
    JSON.stringify(completion({ choices: [{ message, finish_reason: "error" }] })),
  ],
  ["JSON that is nested too deeply", `{"choices":${"[".repeat(2_000)}${"]".repeat(2_000)}}`],
])("%s fails alike, long or short", async (_, text) => {
  let isLong = false;
  await using server = serve(() => new Response(isLong ? text + PADDING : text));
  const short = await failureOf(read(server.baseUrl));
  isLong = true;
  expect(await failureOf(read(server.baseUrl))).toEqual(short);
});

test("a long answer that breaks off is a failure", async () => {
  await using server = serve(
    () =>
      new Response(
        new ReadableStream({
          async start(controller) {
            controller.enqueue(new TextEncoder().encode(`{"choices":${PADDING}`));
            await Bun.sleep(20);
            controller.error(new Error("broken off"));
          },
        }),
      ),
  );
  expect((await failureOf(read(server.baseUrl))).kind).toBe("unavailable");
});

test("a long answer is given up when its call is aborted", async () => {
  const hostile = `{"choices":[${"[],".repeat(2_000_000)}1]}`;
  await using server = serve(() => new Response(hostile));
  const abort = new AbortController();
  const call = callOf("m", { signal: abort.signal });
  // The thread is busy with the first, so that the second waits.
  const first = await adapter(server.baseUrl, { workThread }).chat(callOf("m"));
  const second = await adapter(server.baseUrl, { workThread }).chat(call);
  const running = failureOf(passedOf(first, OPTIONS));
  const waiting = failureOf(passedOf(second, OPTIONS));
  abort.abort();
  expect((await waiting).kind).toBe("aborted");
  expect((await running).kind).toBe("unavailable");
});

test("the worst JSON of 24 MB leaves the event loop to others", async () => {
  const hostile = `{"choices":[{"message":{"content":"a"},"x":[${"[],".repeat(8_000_000)}1]}]}`;
  await using server = serve(() => new Response(hostile));
  const hold = measureLoopHold();
  const answer = await read(server.baseUrl);
  const longestMs = hold.stop();
  expect(answer.body).toBeInstanceOf(Uint8Array);
  // On the event loop it takes more than a second.
  expect(longestMs).toBeLessThan(500);
}, 60_000);
