import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { startStopwatch } from "../support/stopwatch.ts";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway();
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());

async function expectRefused(body: Record<string, unknown>, param = ""): Promise<void> {
  const callsBefore = gateway.upstream.served.length;
  const { error } = await expectError(await gateway.chat(slug, body), 400, "invalid_body");
  expect(error.param ?? "").toStartWith(param);
  expect(gateway.upstream.served).toHaveLength(callsBefore);
}

describe("messages", () => {
  const message = (fields: unknown) => ({ messages: [fields] });
  const BAD: Record<string, Record<string, unknown>> = {
    "an empty list": { messages: [] },
    "no object": message("hello"),
    "a list in the list": message([]),
    null: message(null),
    "without a role": message({ content: "a" }),
    "an unknown role": message({ role: "owner", content: "a" }),
    "a role of another case": message({ role: "User", content: "a" }),
    "a role that is no string": message({ role: 1, content: "a" }),
    "a role of an object's own members": message({ role: "constructor", content: "a" }),
    "content that is a number": message({ role: "user", content: 5 }),
    "content that is a boolean": message({ role: "user", content: true }),
    "content that is an object": message({ role: "user", content: {} }),
    "content that is an empty list": message({ role: "user", content: [] }),
    "content of parts that are strings": message({ role: "user", content: ["a"] }),
    "content of parts that are null": message({ role: "user", content: [null] }),
    "content of parts that are lists": message({ role: "user", content: [[]] }),
    "content of parts without a type": message({ role: "user", content: [{ text: "a" }] }),
    "content of parts with a type that is no string": message({
      role: "user",
      content: [{ type: 5 }],
    }),
    "a user who says nothing": message({ role: "user" }),
    "a user who says null": message({ role: "user", content: null }),
    "a system prompt of nothing": message({ role: "system" }),
    "a tool's result of nothing": message({ role: "tool", tool_call_id: "a", content: null }),
    "a tool's result of no call": message({ role: "tool", content: "a" }),
    "a part of text without text": message({ role: "user", content: [{ type: "text" }] }),
    "a part of text that is no string": message({
      role: "user",
      content: [{ type: "text", text: 5 }],
    }),
    "a name that is no string": message({ role: "user", content: "a", name: 5 }),
    "tool calls that are no list": message({ role: "assistant", tool_calls: {} }),
    "tool calls without a function's name": message({
      role: "assistant",
      tool_calls: [{ id: "a", type: "function", function: { arguments: "{}" } }],
    }),
    "tool arguments that are no string": message({
      role: "assistant",
      tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: {} } }],
    }),
    "one bad message behind a thousand good ones": {
      messages: [...Array(1000).fill({ role: "user", content: "a" }), { role: "x" }],
    },
  };
  test.each(Object.entries(BAD))("%s: 400", async (_, body) => {
    await expectRefused(body);
  });

  test("400 names the place of the fault", async () => {
    const { error } = await expectError(
      await gateway.chat(slug, {
        messages: [
          { role: "user", content: "a" },
          { role: "user", content: 5 },
        ],
      }),
      400,
      "invalid_body",
    );
    expect(error.param).toBe("messages.1.content");
  });

  test("every role, every kind of part, and null content are accepted", async () => {
    const response = await gateway.chat(slug, {
      messages: [
        { role: "system", content: "a" },
        { role: "developer", content: [{ type: "text", text: "a" }] },
        {
          role: "user",
          content: [
            { type: "text", text: "a" },
            { type: "input_audio", input_audio: { data: "", format: "wav" } },
          ],
        },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }],
        },
        { role: "tool", tool_call_id: "c", content: "1" },
        { role: "assistant" },
        { role: "function", name: "f", content: null },
      ],
    });
    expect(response.status).toBe(200);
  });

  test("a hundred thousand faults are refused as quickly as one", async () => {
    const elapsedMs = startStopwatch();
    await expectRefused({ messages: Array(100_000).fill({ role: 5, content: 5 }) });
    expect(elapsedMs()).toBeLessThan(2_000);
  });
});

describe("members of members", () => {
  const BAD: [param: string, body: Record<string, unknown>][] = [
    ["tools.0", { tools: [5] }],
    ["tools.0.function", { tools: [{ type: "function" }] }],
    ["tools.0.function", { tools: [{ type: "function", function: { name: "" } }] }],
    [
      "tools.0.function",
      { tools: [{ type: "function", function: { name: "f", parameters: [] } }] },
    ],
    ["tool_choice", { tool_choice: "sometimes" }],
    ["tool_choice", { tool_choice: { type: "function" } }],
    ["tool_choice", { tool_choice: { type: "custom" } }],
    ["tool_choice", { tool_choice: { type: "allowed_tools", allowed_tools: { mode: "auto" } } }],
    ["tool_choice", { tool_choice: { type: "web_search" } }],
    ["response_format", { response_format: { type: "xml" } }],
    ["response_format", { response_format: { type: "json_schema" } }],
    ["stop", { stop: 5 }],
    ["stop", { stop: [5] }],
    ["stop", { stop: Array(17).fill("a") }],
    ["logit_bias", { logit_bias: { 1: 101 } }],
    ["logit_bias", { logit_bias: { 1: "5" } }],
    ["models", { models: [] }],
    ["models", { models: [5] }],
    ["models", { models: Array(17).fill("test/a") }],
    ["provider", { provider: { order: "openai" } }],
    ["provider", { provider: { order: [5] } }],
    ["provider", { provider: { allow_fallbacks: "no" } }],
    ["stream_options", { stream: true, stream_options: { include_usage: "yes" } }],
    ["usage", { usage: true }],
    ["reasoning", { reasoning: { max_tokens: 0 } }],
    ["reasoning", { reasoning: { exclude: 1 } }],
    ["route", { route: 5 }],
    ["modalities", { modalities: [] }],
    ["modalities", { modalities: ["smell"] }],
    ["user", { user: "x".repeat(513) }],
    ["session_id", { session_id: "x".repeat(257) }],
  ];
  test.each(BAD)("%s: %j", (param, body) => expectRefused(body, param));
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
