import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { ask, askStream } from "./ask.ts";
import { expectedOfStream, expectedOfWhole } from "./expected.ts";
import { valueForSchema } from "./schema-value.ts";
import { startUpstream } from "./server.ts";

const upstream = await startUpstream({ models: ["gpt-4o-mini", "other"] });
const client = new OpenAI({ baseURL: upstream.baseUrl, apiKey: "test", maxRetries: 0 });
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

const WEATHER = {
  type: "function" as const,
  function: {
    name: "weather",
    parameters: {
      type: "object",
      properties: {
        city: { type: "string" },
        days: { type: "integer", minimum: 2 },
        unit: { enum: ["C", "F"] },
      },
      required: ["city"],
    },
  },
};

describe("the regular answer", () => {
  test("echoes the prompt with honest usage, the same streamed and whole", async () => {
    const streamed = expectedOfStream((await askStream(upstream, "m")).text);
    const whole = expectedOfWhole(JSON.parse((await ask(upstream, "m")).text));
    expect(streamed).toEqual(whole);
    expect(whole).toEqual({
      content: "Echo: hello",
      reasoning: "",
      toolCalls: [],
      finishReason: "stop",
      usage: { promptTokens: 2, completionTokens: 3, cachedTokens: 0, reasoningTokens: 0 },
    });
    expect(upstream.totals().m).toMatchObject({
      requests: 2,
      finished: 2,
      promptTokens: 4,
      completionTokens: 6,
    });
  });

  test("has as many content events as asked, with the usage that was set, and no usage unless asked for", async () => {
    upstream.behave("m", {
      do: "complete",
      events: 100,
      usage: { prompt_tokens: 7, completion_tokens: 100 },
    });
    const asked = await askStream(upstream, "m");
    expect(asked.text.split('"delta":{"content":"w')).toHaveLength(101);
    expect(upstream.served[0]).toMatchObject({
      eventsSent: 103,
      usageReported: { prompt_tokens: 7 },
    });
    const unasked = await askStream(upstream, "m", { body: { stream_options: undefined } });
    expect(unasked.text).not.toContain('"usage"');
  });

  test("stops at max_tokens, gives reasoning, and n choices", async () => {
    upstream.behave("m", { do: "complete", content: "0123456789", reasoning: "because" });
    const body = { max_tokens: 2, n: 3 };
    const whole = JSON.parse((await ask(upstream, "m", { body })).text);
    expect(whole.choices.map((one: { index: number }) => one.index)).toEqual([0, 1, 2]);
    expect(expectedOfWhole(whole)).toMatchObject({
      content: "01234567",
      reasoning: "because",
      finishReason: "length",
    });
    const { text } = await askStream(upstream, "m", { body });
    expect(expectedOfStream(text)).toEqual(expectedOfWhole(whole));
    expect(upstream.served.map((one) => one.contentCharactersSent)).toEqual([24, 24]);
  });

  test("pauses before the answer and between events as told", async () => {
    upstream.behave("m", { do: "complete", content: "abcd", firstDelayMs: 30, delayMs: 10 });
    const started = performance.now();
    await askStream(upstream, "m");
    expect(performance.now() - started).toBeGreaterThan(30 + 7 * 10 - 5);
  });
});

describe("the official SDK", () => {
  test("lists models and streams a chat with usage", async () => {
    const models = await client.models.list();
    expect(models.data.map((model) => model.id)).toEqual(["gpt-4o-mini", "other"]);
    const stream = client.chat.completions.stream({
      model: "gpt-4o-mini",
      messages: [{ role: "user", content: [{ type: "text", text: "hi" }] }],
      stream_options: { include_usage: true },
    });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]?.message.content).toBe("Echo: hi");
    expect(final.usage?.total_tokens).toBe(3);
  });

  test("gets a call of an offered tool when one is required or named, and text when not", async () => {
    const request = {
      model: "m",
      messages: [{ role: "user" as const, content: "hi" }],
      tools: [WEATHER],
    };
    const required = await client.chat.completions.create({ ...request, tool_choice: "required" });
    const call = required.choices[0]?.message.tool_calls?.[0];
    expect(call).toMatchObject({ type: "function", function: { name: "weather" } });
    expect(required.choices[0]?.finish_reason).toBe("tool_calls");
    const named = { type: "function" as const, function: { name: "weather" } };
    const final = await client.chat.completions
      .stream({ ...request, tool_choice: named })
      .finalChatCompletion();
    const streamed = final.choices[0]?.message.tool_calls?.[0];
    expect(streamed?.type === "function" && JSON.parse(streamed.function.arguments)).toEqual({
      city: "text",
      days: 2,
      unit: "C",
    });
    const auto = await client.chat.completions.create(request);
    expect(auto.choices[0]?.message.content).toBe("Echo: hi");
  });

  test("gets JSON where response_format asks for it", async () => {
    const messages = [{ role: "user" as const, content: "hi" }];
    const object = await client.chat.completions.create({
      model: "m",
      messages,
      response_format: { type: "json_object" },
    });
    expect(JSON.parse(object.choices[0]?.message.content ?? "")).toEqual({ echo: "hi" });
    const schema = {
      type: "object",
      properties: { list: { type: "array", items: { type: "boolean" } } },
    };
    const structured = await client.chat.completions.create({
      model: "m",
      messages,
      response_format: { type: "json_schema", json_schema: { name: "answer", schema } },
    });
    expect(JSON.parse(structured.choices[0]?.message.content ?? "")).toEqual({ list: [true] });
  });
});

test.each([
  [{ const: 5 }, 5],
  [{ type: ["string", "null"], minLength: 6 }, "texttt"],
  [{ anyOf: [{ type: "null" }, { type: "string" }] }, null],
  [{ $ref: "#/$defs/n", $defs: { n: { type: "number" } } }, 1],
  [{ type: "array", minItems: 2, items: { enum: ["a"] } }, ["a", "a"]],
  [{ properties: { a: { type: "boolean" } } }, { a: true }],
])("a value for the schema %j is %j", (schema, value) => {
  expect(valueForSchema(schema)).toEqual(value);
});

test("a schema that contains itself has a value all the same", () => {
  const schema = { type: "object", properties: { next: { $ref: "#" } } };
  const endless = {
    $ref: "#/$defs/node",
    $defs: { node: { type: "object", properties: { next: { $ref: "#/$defs/node" } } } },
  };
  expect(JSON.stringify(valueForSchema(schema))).toStartWith('{"next":');
  expect(JSON.stringify(valueForSchema(endless)).length).toBeLessThan(200);
});
