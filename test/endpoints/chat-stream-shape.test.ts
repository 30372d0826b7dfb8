import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, chargeNano, startChatGateway } from "../support/chat-gateway.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, type ReadStream, readStream } from "../support/stream-reader.ts";
import { until } from "../support/until.ts";
import type { Behaviour, BehaviourName } from "../upstream/behaviours.ts";

const TEXT = 'Grüße, 世界 🌍: "quotes", back\\slashes,\nnew lines, \u2028 and {"json": [1, 2]}.';
const TOOL = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" } },
      required: ["city", "days"],
    },
  },
};

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

async function stream(
  behaviour: Behaviour,
  body: Record<string, unknown> = {},
): Promise<ReadStream & { response: Response; model: string }> {
  const slug = gateway.modelThat(behaviour);
  const response = await gateway.chat(slug, {
    stream: true,
    stream_options: { include_usage: true },
    ...body,
  });
  expect(response.status).toBe(200);
  return { ...(await readStream(response)), response, model: `test/${slug}` };
}

describe("a provider's unusual way of putting a stream on the wire changes nothing for the client", () => {
  const FRAMINGS: BehaviourName[] = [
    "complete",
    "crlf",
    "cr",
    "no-space",
    "multi-line-data",
    "comments",
    "event-fields",
    "bom",
    "azure",
    "slow-drip",
    "usage-every-chunk",
    "duplicate-finish",
    "no-done",
    "json-for-stream",
  ];
  test.each(FRAMINGS)("%s", async (name) => {
    const read = await stream({ do: name, content: TEXT, cut: name !== "slow-drip" });
    expectStreamShape(read, { model: read.model, includesUsage: true });
    expect(read.content).toBe(TEXT);
    expect(read.finishReason).toBe("stop");
    const bill = await billOfResponse(gateway, read.response);
    const completion = Math.ceil(TEXT.length / 4);
    expect(bill).toMatchObject({ promptTokens: 2, completionTokens: completion });
    expect(bill).toMatchObject({
      estimated: false,
      chargeNano: chargeNano({ prompt: 2, completion }),
    });
  });

  test("bytes that are no UTF-8 do not break the stream", async () => {
    const read = await stream({ do: "invalid-utf8" });
    expectStreamShape(read, { model: read.model, includesUsage: true });
    expect(read.content).toBe("a\ufffd\ufffd\ufffdb");
  });

  test("an event of a mebibyte comes through whole", async () => {
    const read = await stream({ do: "huge-event" }, { max_tokens: 20_000 });
    expectStreamShape(read, { model: read.model, includesUsage: true });
    expect(read.content === "h".repeat(1_048_576)).toBeTrue();
  });
});

test("a stream's headers are those of an event stream that no proxy keeps back", async () => {
  const { response, model } = await stream({ do: "complete" });
  const headers = Object.fromEntries(response.headers);
  expect(headers["content-type"]).toStartWith("text/event-stream");
  expect(headers["cache-control"]).toBe("no-cache");
  expect(headers.connection).toBe("keep-alive");
  expect(headers["x-gateway-provider"]).toBe("primary");
  expect(headers["x-gateway-model"]).toBe(model);
  expect(headers["x-gateway-request-id"]).toMatch(/^req_[0-9a-f]{32}$/);
  expect(headers["x-request-id"]).toBe(headers["x-gateway-request-id"]!);
  expect(Number(headers["x-gateway-latency-ms"])).toBeGreaterThanOrEqual(0);
});

test("OpenRouter's usage.include asks a stream for its usage as stream_options does", async () => {
  for (const [include, includesUsage] of [
    [true, true],
    [false, false],
    [null, false],
  ] as const) {
    const wish = { usage: { include }, stream_options: undefined };
    const read = await stream({ do: "complete" }, wish);
    expectStreamShape(read, { model: read.model, includesUsage });
  }
});

test("each choice of n has its role once, its own content and its own finish reason", async () => {
  const read = await stream({ do: "complete", content: TEXT, cut: true }, { n: 3 });
  expectStreamShape(read, { model: read.model, includesUsage: true });
  for (const index of [0, 1, 2]) {
    const deltas = read.chunks.flatMap(({ choices }) =>
      choices.filter((one) => one.index === index),
    );
    expect(deltas.map(({ delta }) => delta.content ?? "").join("")).toBe(TEXT);
  }
  const completion = Math.ceil(TEXT.length / 4) * 3;
  expect((await billOfResponse(gateway, read.response)).completionTokens).toBe(completion);
});

test("a streamed tool call keeps its id, its name and its arguments, in pieces that join to JSON", async () => {
  const read = await stream(
    { do: "complete", cut: true },
    { tools: [TOOL], tool_choice: "required" },
  );
  expectStreamShape(read, { model: read.model, includesUsage: true });
  expect(read.finishReason).toBe("tool_calls");
  expect(read.toolCalls).toHaveLength(1);
  const [call] = read.toolCalls;
  expect(call!.id).toStartWith("call_");
  expect(call!.name).toBe("get_weather");
  expect(JSON.parse(call!.arguments)).toEqual({
    city: expect.any(String),
    days: expect.any(Number),
  });
});

test("calls that come without indexes, each whole or in pieces, are different calls", async () => {
  const call = (id: string | undefined, name: string | undefined, args: string, more = {}) => ({
    ...(id && { id, type: "function" }),
    ...more,
    function: { ...(name && { name }), arguments: args },
  });
  const calls = (...tool_calls: object[]) => delta({ tool_calls });
  const frames = [
    calls(call("a", "first", '{"n":1}')),
    calls(call("b", "second", '{"n"', { index: null })),
    calls(call(undefined, undefined, ":2}")),
    calls(call("c", "third", ""), call("d", "fourth", "{}")),
    calls(call("c", undefined, "{}")),
    delta({}, "tool_calls"),
    "data: [DONE]\n\n",
  ];
  const read = await stream({ do: "frames", frames }, { tools: [TOOL] });
  expect(read.toolCalls).toEqual([
    { index: 0, id: "a", name: "first", arguments: '{"n":1}' },
    { index: 1, id: "b", name: "second", arguments: '{"n":2}' },
    { index: 2, id: "c", name: "third", arguments: "{}" },
    { index: 3, id: "d", name: "fourth", arguments: "{}" },
  ]);
});

test("a call whose provider leaves out its type, or sends its arguments as an object, is whole", async () => {
  const bare = { id: "a", function: { name: "get_weather", arguments: { city: "Rome" } } };
  const told = { name: "get_weather", arguments: '{"city":"Rome"}' };
  const asked = { tools: [TOOL] };
  const frames = [delta({ tool_calls: [{ index: 0, ...bare }] }), delta({}, "tool_calls")];
  const read = await stream({ do: "frames", frames: [...frames, "data: [DONE]\n\n"] }, asked);
  expect(read.chunks[0]!.choices[0]!.delta.tool_calls).toEqual([
    { index: 0, id: "a", type: "function", function: told },
  ]);
  const message = { role: "assistant", content: "", tool_calls: [bare] };
  const whole = await gateway.chat(
    gateway.modelThat({ do: "frames", frames: [{ choices: [{ message }] }] }),
    asked,
  );
  const { choices } = (await whole.json()) as { choices: { message: object }[] };
  expect(choices[0]!.message).toEqual({
    role: "assistant",
    content: null,
    refusal: null,
    tool_calls: [{ id: "a", type: "function", function: told }],
  });
});

test("reasoning under any provider's name is delta.reasoning", async () => {
  const read = await stream({ do: "complete", reasoning: "Let me think. ", content: "Done." });
  expect(read.reasoning).toBe("Let me think. ");
  expect(read.content).toBe("Done.");
  expect(read.text).not.toContain("reasoning_content");
});

const delta = (fields: object, finishReason: string | null = null) => ({
  choices: [{ index: 0, delta: fields, finish_reason: finishReason }],
});

test("a refusal ends with content_filter, whatever reason the provider gives, streamed and whole", async () => {
  const frames = [
    delta({ role: "assistant", content: null, refusal: "I cannot " }),
    delta({ refusal: "help." }),
    delta({}, "stop"),
    "data: [DONE]\n\n",
  ];
  const read = await stream({ do: "frames", frames });
  expect(read.chunks.map(({ choices }) => choices[0]?.delta.refusal ?? "").join("")).toBe(
    "I cannot help.",
  );
  expect(read.finishReason).toBe("content_filter");
  const message = { role: "assistant", content: null, refusal: "I cannot help." };
  const whole = await gateway.chat(
    gateway.modelThat({
      do: "frames",
      frames: [{ choices: [{ message, finish_reason: "stop" }] }],
    }),
  );
  expect(await whole.json()).toMatchObject({ choices: [{ finish_reason: "content_filter" }] });
});

test("an answer whose every chunk tells the reason is whole, and ends once", async () => {
  const frames = ["a", "b", "c"].map((content) => delta({ content }, "stop"));
  const read = await stream({ do: "frames", frames: [...frames, "data: [DONE]\n\n"] });
  expect(read).toMatchObject({ content: "abc", finishReason: "stop", isDone: true });
  expect(read.text.split('"finish_reason":"stop"')).toHaveLength(2);
});

test("empty events and errors, and a [DONE] with a space behind it, are no failure", async () => {
  const unfailed = { ...delta({ content: "a" }), error: "" };
  const frames = [unfailed, "data\n\n", "data: \n\n", delta({}, "stop")];
  const read = await stream({ do: "frames", frames: [...frames, "data: [DONE] \n\n"] });
  expect(read.error).toBeUndefined();
  expect(read).toMatchObject({ content: "a", isDone: true });
});

test("reasoning that the caller does not want is not told in detail either, streamed and whole", async () => {
  const reasoned = { reasoning: "hush", reasoning_details: [{ type: "text", text: "hush" }] };
  const frames = [delta({ ...reasoned, content: "a" }), delta({}, "stop"), "data: [DONE]\n\n"];
  const hidden = { include_reasoning: false };
  const read = await stream({ do: "frames", frames }, hidden);
  expect(read.content).toBe("a");
  expect(read.text).not.toContain("hush");
  const message = { role: "assistant", content: "a", ...reasoned };
  const slug = gateway.modelThat({ do: "frames", frames: [{ choices: [{ message }] }] });
  expect(await (await gateway.chat(slug, hidden)).text()).not.toContain("hush");
});

test("an answer without any content is a whole stream with nothing in it", async () => {
  const read = await stream({ do: "no-content" });
  expectStreamShape(read, { model: read.model, includesUsage: true });
  expect(read.content).toBe("");
});

test("an answer that its limit has cut ends with length", async () => {
  const read = await stream({ do: "complete", content: "x".repeat(400) }, { max_tokens: 5 });
  expect(read.finishReason).toBe("length");
  expect(read.content).toBe("x".repeat(20));
});

test("a client that does not read holds the provider back", async () => {
  const slug = gateway.modelThat({ do: "endless" });
  const abort = new AbortController();
  const body = { stream: true, max_tokens: 4_000_000 };
  const response = await gateway.chat(slug, body, { signal: abort.signal });
  const served = gateway.upstream.served.find(({ model }) => model === slug)!;
  let seen = -1;
  let sinceMs = performance.now();
  await until("the provider stands still", () => {
    if (served.eventsSent !== seen) {
      seen = served.eventsSent;
      sinceMs = performance.now();
    }
    return performance.now() - sinceMs > 300;
  });
  expect(served.contentCharactersSent).toBeLessThan(64 * 1_048_576);
  expect(served.aborted).toBeFalse();
  abort.abort();
  await gateway.upstream.until(() => served.aborted);
  const bill = await until("the charge", () =>
    billOf(gateway, response.headers.get("x-gateway-request-id")!),
  );
  expect(bill).toMatchObject({ status: 499, estimated: true });
  expect(bill.completionTokens).toBeLessThanOrEqual(served.contentCharactersSent / 4);
});
