import { describe, expect, test } from "bun:test";
import { cohereFields } from "../../src/providers/cohere/chat-fields.ts";
import { cohereBody } from "../../src/providers/cohere/request-body.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";

/** What Cohere is sent for a request in OpenAI's words. */

type Fields = Record<string, unknown>;

const THINKING = "command-a-reasoning-08-2025";
const PLAIN = "command-r7b-12-2024";

function sent(fields: Fields, model = THINKING): Fields {
  const request = { messages: [{ role: "user", content: "hi" }], ...fields };
  const { body } = cohereBody.render(request, { model, modelId: undefined, stream: true });
  const { model: name, stream, ...rest } = JSON.parse(body as string) as Fields;
  expect({ name, stream }).toEqual({ name: model, stream: true });
  return rest;
}

const messages = (list: readonly Fields[]) => sent({ messages: list }).messages;

function refusal(fields: Fields): ProviderFailure {
  try {
    sent(fields);
  } catch (error) {
    if (error instanceof ProviderFailure) return error;
  }
  throw new Error("it was not refused");
}

describe("messages", () => {
  test("of the system stand first, wherever they stood", () => {
    const list = [
      { role: "user", content: "hi" },
      { role: "system", content: "Be brief." },
      { role: "developer", content: [{ type: "text", text: "Be kind." }] },
    ];
    expect(messages(list)).toEqual([
      {
        role: "system",
        content: [
          { type: "text", text: "Be brief." },
          { type: "text", text: "Be kind." },
        ],
      },
      { role: "user", content: "hi" },
    ]);
    expect(messages([list[1]!])).toEqual([{ role: "system", content: "Be brief." }]);
  });

  test("bring images by URL and in base64, and texts as documents", () => {
    const text = Buffer.from("grüße").toString("base64");
    const content = [
      { type: "text", text: "Look:" },
      { type: "image_url", image_url: { url: "https://a.test/a.png", detail: "low" } },
      { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
      {
        type: "file",
        file: { filename: "a.txt", file_data: `data:text/plain;base64,${text}` },
      },
    ];
    const body = sent({ messages: [{ role: "user", content }], documents: ["own"] });
    expect(body.messages).toEqual([
      {
        role: "user",
        content: [
          { type: "text", text: "Look:" },
          { type: "image_url", image_url: { url: "https://a.test/a.png", detail: "low" } },
          { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } },
        ],
      },
    ]);
    expect(body.documents).toEqual(["own", { data: { title: "a.txt", text: "grüße" } }]);
  });

  test.each([
    [{ type: "input_audio", input_audio: { data: "AAAA", format: "wav" } }, "type"],
    [{ type: "file", file: { file_id: "file-1" } }, ""],
    [{ type: "file", file: { file_data: "data:application/pdf;base64,AAAA" } }, ""],
    [{ type: "image_url", image_url: {} }, ""],
  ])("name the part that Cohere does not take: %j", (part, member) => {
    const { kind, param } = refusal({ messages: [{ role: "user", content: [part] }] });
    expect(kind).toBe("rejected");
    expect(param).toBe(`messages.0.content.0${member === "" ? "" : `.${member}`}`);
  });

  test("of the role function, and images in results, are refused by name", () => {
    expect(refusal({ messages: [{ role: "function", name: "f", content: "1" }] }).param).toBe(
      "messages.0.role",
    );
    const content = [{ type: "image_url", image_url: { url: "https://a.test" } }];
    expect(refusal({ messages: [{ role: "tool", tool_call_id: "1", content }] }).param).toBe(
      "messages.0.content.0.type",
    );
  });

  test("bring thinking, plan, parallel calls and their results back", () => {
    const format = "cohere-v2";
    const call = (id: string, text?: string) => ({
      id,
      type: "function",
      function: { name: "look", arguments: text },
    });
    const list = [
      { role: "user", content: "What colour?" },
      {
        role: "assistant",
        content: null,
        reasoning: "Hm. I will look.",
        reasoning_details: [
          { type: "reasoning.text", text: "H", index: 0, format },
          { type: "reasoning.text", text: "m.", index: 0, format },
          { type: "reasoning.text", text: "of another wire", index: 0, format: "other" },
          { type: "reasoning.summary", summary: "I will ", index: 1, format },
          { type: "reasoning.summary", summary: "look.", index: 1, format },
        ],
        tool_calls: [call("a", '{"at":"sky"}'), call("b", "")],
      },
      { role: "tool", tool_call_id: "a", content: "blue" },
      { role: "tool", tool_call_id: "b", content: [{ type: "text", text: '{"c":1}' }] },
      { role: "assistant", content: "Blue." },
      { role: "assistant", content: "" },
      { role: "assistant", refusal: "No." },
    ];
    expect(messages(list)).toEqual([
      { role: "user", content: "What colour?" },
      {
        role: "assistant",
        content: [{ type: "thinking", thinking: "Hm." }],
        tool_plan: "I will look.",
        tool_calls: [call("a", '{"at":"sky"}'), call("b", "{}")],
      },
      { role: "tool", tool_call_id: "a", content: "blue" },
      { role: "tool", tool_call_id: "b", content: [{ type: "text", text: '{"c":1}' }] },
      { role: "assistant", content: [{ type: "text", text: "Blue." }] },
      { role: "assistant", content: [{ type: "text", text: "No." }] },
    ]);
  });
});

describe("tools", () => {
  const tool = (name: string, more: object = {}) => ({
    type: "function",
    function: { name, ...more },
  });
  const empty = { type: "object", properties: {} };
  const tools = [tool("look", { description: "Looks.", parameters: empty }), tool("hear")];
  const rendered = [
    tool("look", { description: "Looks.", parameters: empty }),
    tool("hear", { parameters: empty }),
  ];

  test.each([
    [undefined, {}],
    ["auto", {}],
    ["none", { tool_choice: "NONE" }],
    ["required", { tool_choice: "REQUIRED" }],
  ])("choice %p", (tool_choice, wanted) => {
    expect(sent({ tools, tool_choice })).toMatchObject({ tools: rendered, ...wanted });
    expect("tool_choice" in sent({ tools, tool_choice })).toBe("tool_choice" in wanted);
  });

  test("one that is named is the only one that is offered, and demanded", () => {
    const named = sent({ tools, tool_choice: { type: "function", function: { name: "hear" } } });
    expect(named).toMatchObject({ tools: [rendered[1]!], tool_choice: "REQUIRED" });
    expect(named.tools).toHaveLength(1);
    const allowed = { mode: "auto", tools: [tool("look")] };
    const some = sent({ tools, tool_choice: { type: "allowed_tools", allowed_tools: allowed } });
    expect(some.tools).toEqual([rendered[0]]);
    expect(some.tool_choice).toBeUndefined();
  });

  test("are strict where all of them are", () => {
    expect(sent({ tools: [tool("a", { strict: true })] }).strict_tools).toBeTrue();
    const mixed = [tool("a", { strict: true }), tool("b")];
    expect(sent({ tools: mixed }).strict_tools).toBeUndefined();
  });
});

test("formats, stops and sampling have Cohere's names", () => {
  const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
  const body = sent({
    response_format: { type: "json_schema", json_schema: { name: "n", schema, strict: true } },
    stop: ["END"],
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    frequency_penalty: 0.5,
    seed: 7,
    max_tokens: 100,
    safety_mode: "STRICT",
    citation_options: { mode: "DISABLED" },
  });
  expect(body).toEqual({
    messages: [{ role: "user", content: "hi" }],
    response_format: { type: "json_object", json_schema: schema },
    stop_sequences: ["END"],
    temperature: 0.5,
    p: 0.9,
    k: 40,
    frequency_penalty: 0.5,
    seed: 7,
    max_tokens: 100,
    safety_mode: "STRICT",
    citation_options: { mode: "DISABLED" },
  });
  expect(sent({ response_format: { type: "json_object" } }).response_format).toEqual({
    type: "json_object",
  });
  expect(sent({ response_format: { type: "text" }, stop: "X" })).toEqual({
    messages: [{ role: "user", content: "hi" }],
    stop_sequences: ["X"],
  });
});

test.each([
  [
    { reasoning: { effort: "low" }, max_tokens: 1_000 },
    { type: "enabled", token_budget: 200 },
  ],
  [{ reasoning_effort: "high" }, { type: "enabled", token_budget: 25_600 }],
  [{ reasoning: { max_tokens: 500 } }, { type: "enabled", token_budget: 500 }],
  [{ reasoning: { enabled: true } }, { type: "enabled" }],
  [{ reasoning: { enabled: false } }, { type: "disabled" }],
  [{ reasoning_effort: "none" }, { type: "disabled" }],
  [{ reasoning: { exclude: true } }, undefined],
  [{}, undefined],
])("reasoning %j is thinking %j", (fields, thinking) => {
  expect(sent(fields).thinking).toEqual(thinking);
  expect(sent(fields, PLAIN).thinking).toBeUndefined();
});

test("what Cohere lacks is known before it is asked", () => {
  const { unsupported: missing } = cohereFields("cohere");
  const lacks = (field: string, value: unknown, model = THINKING, request: Fields = {}) =>
    missing(field, value, { model, modelId: `cohere/${model}` }, true, request);
  const json = { type: "json_object" };
  const LACKED: readonly [string, unknown, Fields?][] = [
    ["n", 2],
    ["logprobs", true],
    ["logit_bias", { 1: 1 }],
    ["min_p", 0.1],
    ["user", "u"],
    ["parallel_tool_calls", false],
    ["temperature", 1.5],
    ["top_p", 1],
    ["presence_penalty", -1],
    ["presence_penalty", 0.5, { frequency_penalty: 0.5 }],
    ["response_format", json, { tools: [{ type: "function" }] }],
    ["tools", [{ type: "custom" }]],
    ["unheard_of", 1],
  ];
  for (const [field, value, request] of LACKED) {
    expect([field, lacks(field, value, THINKING, request)]).toEqual([field, [field]]);
  }
  const HAD: readonly [string, unknown][] = [
    ["tools", [{ type: "function" }]],
    ["tool_choice", "required"],
    ["response_format", json],
    ["stop", ["a"]],
    ["temperature", 0.7],
    ["top_k", 5],
    ["seed", 1],
    ["reasoning_effort", "low"],
    ["reasoning", { effort: "low", exclude: true }],
    ["documents", []],
  ];
  for (const [field, value] of HAD) expect([field, lacks(field, value)]).toEqual([field, []]);
  const takes = (kind: "image" | "file" | "audio", model: string) =>
    cohereFields("cohere").takesPart(kind, { model, modelId: `cohere/${model}` });
  expect([takes("image", PLAIN), takes("image", "command-a-vision-07-2025")]).toEqual([
    false,
    true,
  ]);
  expect([takes("file", PLAIN), takes("audio", PLAIN)]).toEqual([true, false]);
  expect(lacks("reasoning", { effort: "low", summary: "auto" })).toEqual(["reasoning.summary"]);
  expect(lacks("reasoning", { effort: "low" }, PLAIN)).toEqual(["reasoning"]);
  expect(lacks("reasoning", { effort: "none" }, PLAIN)).toEqual([]);
  expect(lacks("reasoning_effort", "low", PLAIN)).toEqual(["reasoning_effort"]);
});
