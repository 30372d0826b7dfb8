import { expect, test } from "bun:test";
import { failureOf } from "./openai-adapter.ts";
import { complete, sandboxCall, tool, user } from "./sandbox-calls.ts";

const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer", minimum: 2 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const TOOLS = [tool("get_weather", PARAMETERS), tool("get_time")];
const RESULT = { role: "tool", tool_call_id: "call_1", content: "12 degrees" };

async function called(body: Record<string, unknown>): Promise<string[]> {
  const { choices } = await complete({ tools: TOOLS, ...body });
  return choices[0]?.message.tool_calls?.map((call) => call.function.name) ?? [];
}

test("an offered tool is called with arguments that satisfy its schema, in OpenAI's shape", async () => {
  const { choices } = await complete({ messages: [user("hi")], tools: TOOLS });
  expect(choices[0]).toMatchObject({
    finish_reason: "tool_calls",
    message: {
      role: "assistant",
      content: null,
      tool_calls: [{ type: "function", function: { name: "get_weather" } }],
    },
  });
  const [call] = choices[0]?.message.tool_calls ?? [];
  expect(JSON.parse(call?.function.arguments ?? "")).toEqual({ city: "example", days: 2 });
  expect(call?.id).toStartWith("call_");
});

const Q = { type: "object", properties: { q: { type: "integer" } }, required: ["q"] };
test.each<[unknown, string]>([
  [undefined, "{}"],
  [{}, "{}"],
  [{ description: "nothing" }, "{}"],
  [{ anyOf: [{ type: "string" }, Q] }, '{"q":1}'],
  [{ type: ["string", "object"] }, "{}"],
  [{ $ref: "#/$defs/q", $defs: { q: Q } }, '{"q":1}'],
  [{ enum: ["x"] }, '"x"'],
])("arguments are an object where the schema %j has room for one", async (parameters, expected) => {
  const bare = { type: "function", function: { name: "now", parameters } };
  const { choices } = await complete({ messages: [user("hi")], tools: [bare] });
  expect(choices[0]?.message.tool_calls?.[0]?.function.arguments).toBe(expected);
});

test("tools that the user names are called, several in parallel, unless that is forbidden", async () => {
  const one = [user("use get_time please")];
  const both = [user("use get_time and get_weather")];
  expect(await called({ messages: one })).toEqual(["get_time"]);
  expect(await called({ messages: both })).toEqual(["get_weather", "get_time"]);
  expect(await called({ messages: both, parallel_tool_calls: false })).toEqual(["get_weather"]);
});

test("parallel calls have ids of their own", async () => {
  const { choices } = await complete({
    messages: [user("get_time get_weather")],
    tools: TOOLS,
    n: 2,
  });
  const ids = choices.flatMap((choice) => choice.message.tool_calls?.map((call) => call.id) ?? []);
  expect(new Set(ids).size).toBe(4);
});

test("with auto, a tool's result is answered with text until the user speaks again", async () => {
  const asked = [user("hi"), { role: "assistant", content: null, tool_calls: [] }, RESULT];
  const { choices } = await complete({ messages: asked, tools: TOOLS, tool_choice: "auto" });
  expect(choices[0]).toMatchObject({
    finish_reason: "stop",
    message: { content: "The tool said: 12 degrees" },
  });
  expect(await called({ messages: [...asked, user("again")] })).toEqual(["get_weather"]);
});

test("tool_choice decides: none, required, or one function", async () => {
  const messages = [user("hi"), RESULT];
  const time = { type: "function", function: { name: "get_time" } };
  expect(await called({ messages: [user("hi")], tool_choice: "none" })).toEqual([]);
  expect(await called({ messages, tool_choice: "required" })).toEqual(["get_weather"]);
  expect(await called({ messages, tool_choice: time })).toEqual(["get_time"]);
});

test("of the tools that tool_choice allows alone those are called", async () => {
  const time = { type: "function", function: { name: "get_time" } };
  const allowing = (mode: string, tools: unknown[] = [time]) => ({
    tool_choice: { type: "allowed_tools", allowed_tools: { mode, tools } },
  });
  const asked = [user("hi, get_weather")];
  expect(await called({ messages: asked, ...allowing("auto") })).toEqual(["get_time"]);
  expect(await called({ messages: [...asked, RESULT], ...allowing("auto") })).toEqual([]);
  expect(await called({ messages: [...asked, RESULT], ...allowing("required") })).toEqual([
    "get_time",
  ]);
  expect(await called({ messages: asked, ...allowing("auto", [{}]) })).toEqual([]);
});

test("a tool choice that cannot be met is rejected", async () => {
  const unknown = { type: "function", function: { name: "other" } };
  const custom = { type: "custom", custom: { name: "get_time" } };
  const none = { type: "allowed_tools", allowed_tools: { mode: "required", tools: [unknown] } };
  for (const body of [
    { tools: TOOLS, tool_choice: unknown },
    { tools: TOOLS, tool_choice: custom },
    { tools: TOOLS, tool_choice: none },
    { tool_choice: "required" },
  ]) {
    const failure = await failureOf(sandboxCall({ messages: [user("hi")], ...body }));
    expect([failure.kind, failure.param]).toEqual(["rejected", "tool_choice"]);
  }
});

test("a limit within the arguments cuts them", async () => {
  const body = { messages: [user("hi")], tools: TOOLS, max_tokens: 3 };
  const { choices, usage } = await complete(body);
  const [call] = choices[0]?.message.tool_calls ?? [];
  expect(choices[0]?.finish_reason).toBe("length");
  expect('{"city":"example","days":2}').toStartWith(call?.function.arguments ?? "none");
  expect(usage.completion_tokens).toBe(3);
});

test("a call costs tokens, also without arguments", async () => {
  const { usage } = await complete({ messages: [user("hi")], tools: [tool("now")] });
  expect(usage.completion_tokens).toBeGreaterThan(0);
});

test.each([[[]], [null], ["x"], [[null, {}, { function: {} }, { function: { name: 5 } }]]])(
  "tools that are none are not called: %p",
  async (tools) => {
    expect(await called({ messages: [user("hi")], tools })).toEqual([]);
  },
);

test("response_format json_object is obeyed", async () => {
  const format = { response_format: { type: "json_object" } };
  const { choices } = await complete({ messages: [user('say "hi"')], ...format });
  expect(JSON.parse(choices[0]?.message.content ?? "")).toEqual({
    answer: expect.stringContaining('You said: say "hi"'),
  });
});

test("response_format json_schema is obeyed, after tools", async () => {
  const schema = {
    type: "object",
    properties: { answer: { enum: ["yes", "no"] }, n: { type: "number", exclusiveMinimum: 3 } },
    required: ["answer", "n"],
  };
  const response_format = { type: "json_schema", json_schema: { name: "s", strict: true, schema } };
  const { choices } = await complete({ messages: [user("hi")], response_format });
  expect(choices[0]?.finish_reason).toBe("stop");
  expect(JSON.parse(choices[0]?.message.content ?? "")).toEqual({ answer: "yes", n: 4 });
  expect(await called({ messages: [user("hi")], response_format })).toEqual(["get_weather"]);
});

test("the arguments of many tools together cost no more than those of one", async () => {
  const endless = {
    type: "object",
    required: ["a"],
    properties: { a: { minItems: 1e9, items: {} } },
  };
  const modest = {
    type: "object",
    required: ["a"],
    properties: { a: { minItems: 500, items: {} } },
  };
  const lengths = async (parameters: object) => {
    const tools = Array.from({ length: 16 }, (_, index) => tool(`tool_${index}_`, parameters));
    const said = tools.map((offered) => offered.function.name).join(" ");
    const { choices } = await complete({ messages: [user(said)], tools, max_tokens: 16_384 });
    const calls = choices[0]?.message.tool_calls ?? [];
    return calls.map((call) => JSON.parse(call.function.arguments).a?.length ?? 0);
  };
  for (const parameters of [endless, modest]) {
    const made = await lengths(parameters);
    expect(made).toHaveLength(16);
    expect(made[0]).toBeGreaterThanOrEqual(500);
    expect(made.at(-1)).toBe(0);
  }
});
