import { expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { bytesIn, failureOf, textOf } from "./openai-adapter.ts";
import {
  assembled,
  complete,
  essentials,
  sandboxCall,
  streamed,
  tool,
  user,
} from "./sandbox-calls.ts";

const COUNT = { messages: [user("count to 20")] };

test.each([
  ["text", {}],
  ["a limit", { max_tokens: 5 }],
  ["a stop sequence", { stop: "7" }],
  ["an immediate stop", { stop: "1" }],
  ["several choices", { n: 3 }],
  ["reasoning", { reasoning: { effort: "high" } }],
  ["hidden reasoning", { reasoning: { effort: "high", exclude: true } }],
  ["tool calls", { tools: [tool("a", { properties: { x: {} } }), tool("b")] }],
  ["cut tool calls", { tools: [tool("a", { properties: { x: {} } })], max_tokens: 2 }],
  [
    "a schema",
    { response_format: { type: "json_schema", json_schema: { schema: { type: "array" } } } },
  ],
] as const)("a stream with %s says the same as the completion", async (_what, options) => {
  const whole = await complete({ ...COUNT, ...options });
  const chunks = await streamed({
    ...COUNT,
    ...options,
    stream_options: { include_usage: true },
  });
  expect(assembled(chunks)).toEqual(essentials(whole));
  expect(chunks.at(-1)).toMatchObject({ choices: [], usage: whole.usage });
});

test("the role is only on the first chunk, the finish reason on the last, and each token has a chunk", async () => {
  const chunks = await streamed({ ...COUNT, stream_options: {} });
  const [first, ...rest] = chunks.map((chunk) => chunk.choices[0]!);
  expect(first).toMatchObject({ delta: { role: "assistant", content: "" }, finish_reason: null });
  expect(rest.some((choice) => "role" in choice.delta)).toBe(false);
  expect(rest.pop()).toMatchObject({ delta: {}, finish_reason: "stop" });
  expect(rest.every((choice) => choice.finish_reason === null)).toBe(true);
  expect(rest.length).toBe((await complete(COUNT)).usage.completion_tokens);
});

test("all chunks have the same head", async () => {
  const clock = new VirtualClock(5_000);
  const chunks = await streamed({ ...COUNT, stream_options: {} }, { clock });
  for (const { choices: _, ...head } of chunks) {
    expect(head as unknown).toEqual({
      id: "chatcmpl-req_1",
      object: "chat.completion.chunk",
      created: 5,
      model: "chat",
    });
  }
});

test("a tool call's id and name come first, its arguments in pieces", async () => {
  const parameters = { type: "object", properties: { city: { type: "string" } } };
  const chunks = await streamed({ messages: [user("hi")], tools: [tool("look", parameters)] });
  const deltas = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
  expect(deltas[0]).toMatchObject({ index: 0, function: { name: "look", arguments: "" } });
  expect(deltas[0]?.id).toStartWith("call_");
  expect(deltas.length).toBeGreaterThan(2);
  expect(deltas.slice(1).every((delta) => delta.id === undefined)).toBe(true);
  const text = deltas.map((delta) => delta.function.arguments).join("");
  expect(JSON.parse(text)).toEqual({ city: "example" });
});

test("without include_usage there is no usage chunk", async () => {
  const chunks = await streamed({ ...COUNT, stream_options: {} });
  expect(chunks.some((chunk) => "usage" in chunk)).toBe(false);
});

test("a stream makes no more than is read", async () => {
  const answer = await sandboxCall({ messages: [user("count to 4000")] }, { stream: true });
  const reader = bytesIn(answer);
  const { value } = await reader.read();
  expect(new TextDecoder().decode(value).match(/data: /g)).toHaveLength(1);
  await reader.cancel();
  expect((await reader.read()).done).toBe(true);
});

test("an aborted stream ends with a failure of kind aborted", async () => {
  const controller = new AbortController();
  const { signal } = controller;
  const answer = await sandboxCall(COUNT, { stream: true, signal });
  const reader = bytesIn(answer);
  await reader.read();
  controller.abort();
  const readToEnd = async () => {
    while (!(await reader.read()).done);
  };
  await expect(readToEnd()).rejects.toMatchObject({ kind: "aborted" });
  expect((await failureOf(sandboxCall(COUNT, { signal }))).kind).toBe("aborted");
});

test("a stream without a reader of usage ends with [DONE]", async () => {
  const answer = await sandboxCall({}, { stream: true });
  expect(await textOf(answer)).toEndWith("data: [DONE]\n\n");
});
