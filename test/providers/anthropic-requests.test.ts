import { describe, expect, test } from "bun:test";
import { anthropicFields } from "../../src/providers/anthropic/chat-fields.ts";
import { messagesBody } from "../../src/providers/anthropic/request-body.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";

type Fields = Record<string, unknown>;

const HELLO = [{ role: "user", content: "hello" }];
const TOOL = {
  type: "function",
  function: {
    name: "look",
    description: "Looks somewhere",
    parameters: { type: "object", properties: { at: { type: "string" } } },
  },
};

function rendered(fields: Fields, model: string) {
  const request = { messages: HELLO, max_tokens: 10_000, ...fields };
  return messagesBody.render(request, { model, modelId: undefined, stream: false });
}

/** What the provider gets. */
function sent(fields: Fields, model = "claude-opus-5"): Fields {
  return JSON.parse(rendered(fields, model).body as string) as Fields;
}

const messagesOf = (messages: readonly Fields[]) => sent({ messages }).messages;

/** Where the request has no counterpart. */
function refusedAt(fields: Fields): string | null {
  try {
    sent(fields);
  } catch (error) {
    expect(error).toBeInstanceOf(ProviderFailure);
    expect((error as ProviderFailure).kind).toBe("rejected");
    return (error as ProviderFailure).param;
  }
  return "it was taken";
}

describe("messages", () => {
  test("system and developer messages, wherever they stand, are the system prompt in their order", () => {
    const body = sent({
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "hello" },
        { role: "developer", content: [{ type: "text", text: "Be kind." }] },
        { role: "user", content: "again" },
      ],
    });
    expect(body.system).toEqual([
      { type: "text", text: "Be brief." },
      { type: "text", text: "Be kind." },
    ]);
    expect(body.messages).toEqual([
      {
        role: "user",
        content: [
          { type: "text", text: "hello" },
          { type: "text", text: "again" },
        ],
      },
    ]);
  });

  test("parallel calls and their results: one turn of each side, results before what the user says", () => {
    const call = (id: string, at: string) => ({
      id,
      type: "function",
      function: { name: "look", arguments: JSON.stringify({ at }) },
    });
    expect(
      messagesOf([
        ...HELLO,
        { role: "assistant", content: null, tool_calls: [call("a", "sky"), call("b.1", "sea")] },
        { role: "tool", tool_call_id: "a", content: "blue" },
        { role: "tool", tool_call_id: "b.1", content: [{ type: "text", text: "wet" }] },
        { role: "user", content: "and?" },
      ]),
    ).toEqual([
      { role: "user", content: [{ type: "text", text: "hello" }] },
      {
        role: "assistant",
        content: [
          { type: "tool_use", id: "a", name: "look", input: { at: "sky" } },
          { type: "tool_use", id: "b_1", name: "look", input: { at: "sea" } },
        ],
      },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "a", content: "blue" },
          { type: "tool_result", tool_use_id: "b_1", content: [{ type: "text", text: "wet" }] },
          { type: "text", text: "and?" },
        ],
      },
    ]);
  });

  test.each([
    ['{"at": sky', { INVALID_JSON: '{"at": sky' }],
    ["[1]", { INVALID_JSON: "[1]" }],
    ["", {}],
  ])("arguments %j of an earlier call", (text, input) => {
    const calls = [{ id: "a", type: "function", function: { name: "look", arguments: text } }];
    expect(messagesOf([...HELLO, { role: "assistant", tool_calls: calls }])).toMatchObject([
      {},
      { content: [{ type: "tool_use", input }] },
    ]);
  });

  test("images and documents, by URL and in base64", () => {
    const image = (url: string) => ({ type: "image_url", image_url: { url } });
    const file = (file_data: string, filename?: string) => ({
      type: "file",
      file: { file_data, filename },
    });
    const content = [
      image("https://example.com/a.png"),
      image("data:image/PNG;base64,AAEC"),
      file("data:application/pdf;base64,JVBE", "a.pdf"),
      file("https://example.com/b.pdf"),
      file(`data:text/markdown;charset=utf-8;base64,${btoa("# hi")}`),
      image("data:text/plain,a%20b"),
      file("data:image/jpeg;base64,/9j/"),
    ];
    const blocks = (messagesOf([{ role: "user", content }]) as { content: Fields[] }[])[0]!.content;
    expect(blocks).toEqual([
      { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
      { type: "image", source: { type: "base64", media_type: "image/png", data: "AAEC" } },
      {
        type: "document",
        title: "a.pdf",
        source: { type: "base64", media_type: "application/pdf", data: "JVBE" },
      },
      { type: "document", source: { type: "url", url: "https://example.com/b.pdf" } },
      { type: "document", source: { type: "text", media_type: "text/plain", data: "# hi" } },
      { type: "document", source: { type: "text", media_type: "text/plain", data: "a b" } },
      { type: "image", source: { type: "base64", media_type: "image/jpeg", data: "/9j/" } },
    ]);
  });

  test("images in a tool's result stay images", () => {
    const content = [{ type: "image_url", image_url: { url: "https://example.com/a.png" } }];
    const source = { type: "url", url: "https://example.com/a.png" };
    expect(messagesOf([{ role: "tool", tool_call_id: "a", content }])).toEqual([
      {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: "a", content: [{ type: "image", source }] }],
      },
    ]);
  });

  test.each<[string, readonly Fields[]]>([
    ["messages.0.content.1.type", [{ type: "input_audio", input_audio: { data: "AA==" } }]],
    ["messages.0.content.1.type", [{ type: "hologram" }]],
    ["messages.0.content.1", [{ type: "file", file: { file_id: "file_1" } }]],
    ["messages.0.content.1", [{ type: "file", file: { file_data: "data:audio/wav;base64,AA" } }]],
    ["messages.0.content.1", [{ type: "image_url", image_url: {} }]],
  ])("%s has no counterpart and is named", (param, parts) => {
    const content = [{ type: "text", text: "look" }, ...parts];
    expect(refusedAt({ messages: [{ role: "user", content }] })).toBe(param);
  });

  test("messages of the role function, and calls of what is no function, are named", () => {
    expect(refusedAt({ messages: [...HELLO, { role: "function", name: "f", content: "" }] })).toBe(
      "messages.1.role",
    );
    const calls = [{ id: "a", type: "custom", custom: { name: "c", input: "" } }];
    expect(refusedAt({ messages: [...HELLO, { role: "assistant", tool_calls: calls }] })).toBe(
      "messages.1.tool_calls.0",
    );
  });

  test("text that is empty is left out, and an answer to be continued does not end in white space", () => {
    expect(
      messagesOf([
        {
          role: "user",
          content: [
            { type: "text", text: "" },
            { type: "text", text: "hello" },
          ],
        },
        { role: "assistant", content: "It is \n" },
      ]),
    ).toEqual([
      { role: "user", content: [{ type: "text", text: "hello" }] },
      { role: "assistant", content: [{ type: "text", text: "It is" }] },
    ]);
  });

  test("breakpoints of the cache: on parts, messages and tools", () => {
    const cache_control = { type: "ephemeral" };
    const hour = { type: "ephemeral", ttl: "1h" };
    const body = sent({
      messages: [
        { role: "system", content: "a", cache_control: hour },
        { role: "user", content: [{ type: "text", text: "b", cache_control }] },
        { role: "assistant", content: "c", cache_control },
        { role: "tool", tool_call_id: "d", content: "e", cache_control },
      ],
      tools: [
        { ...TOOL, cache_control },
        { type: "function", function: { name: "f", cache_control } },
      ],
    });
    expect(body).toMatchObject({
      system: [{ text: "a", cache_control: hour }],
      messages: [
        { content: [{ text: "b", cache_control }] },
        { content: [{ text: "c", cache_control }] },
        { content: [{ type: "tool_result", cache_control }] },
      ],
      tools: [
        { name: "look", cache_control },
        { name: "f", cache_control },
      ],
    });
  });
});

describe("breakpoints of the cache that are asked for without a place", () => {
  const text = (role: string, content: string) => ({ role, content });
  const marked = (content: string, ttl?: string) => ({
    role: "user",
    content: [{ type: "text", text: content, cache_control: control(ttl) }],
  });
  const control = (ttl?: string) => ({ type: "ephemeral", ...(ttl !== undefined && { ttl }) });

  /** What has a breakpoint, and the lifetime of it, in the order of the prompt. */
  function breakpoints(fields: Fields): string[] {
    const body = sent(fields);
    expect(body.cache_control).toBeUndefined();
    const messages = body.messages as { content: Fields[] }[];
    const blocks = [body.tools, body.system].flatMap((one) => (one ?? []) as Fields[]);
    return [...blocks, ...messages.flatMap(({ content }) => content)].flatMap((block) => {
      const { cache_control: own, name, text: said, type } = block;
      if (own === undefined) return [];
      return `${name ?? said ?? type} ${(own as Fields).ttl ?? "-"}`;
    });
  }

  const SYSTEM = text("system", "system");
  const TURNS = [
    text("user", "u1"),
    text("assistant", "a1"),
    text("user", "u2"),
    text("assistant", "a2"),
    text("user", "u3"),
  ];
  const tools = [TOOL, { type: "function", function: { name: "last" } }];

  test.each<[string, Fields, string[]]>([
    ["one message", { messages: [text("user", "u1")] }, ["u1 -"]],
    [
      "a conversation with tools",
      { tools, messages: [SYSTEM, ...TURNS] },
      ["last -", "system -", "u2 -", "u3 -"],
    ],
    [
      "one of the caller's, which counts",
      { tools, messages: [SYSTEM, marked("own"), ...TURNS.slice(1)] },
      ["last -", "system -", "own -", "u3 -"],
    ],
    [
      "one of the caller's where one is put",
      { tools, messages: [SYSTEM, ...TURNS.slice(0, 4), marked("own", "5m")] },
      ["last -", "system -", "u2 -", "own 5m"],
    ],
    [
      "four of the caller's",
      { messages: [SYSTEM, marked("1"), marked("2"), marked("3"), marked("4"), text("user", "5")] },
      ["1 -", "2 -", "3 -", "4 -"],
    ],
    [
      "results of tools, behind thinking",
      {
        messages: [
          text("user", "u1"),
          {
            role: "assistant",
            reasoning_details: [{ type: "reasoning.text", text: "hm", signature: "sig" }],
            tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }],
          },
          { role: "tool", tool_call_id: "a", content: "blue" },
        ],
      },
      ["u1 -", "tool_result -"],
    ],
  ])("stand at the ends of %s", (_what, fields, wanted) => {
    expect(breakpoints({ cache_control: control(), ...fields })).toEqual(wanted);
  });

  test("of an hour never follow one of five minutes, and of five minutes never precede an hour", () => {
    const messages = [SYSTEM, marked("own"), ...TURNS.slice(1)];
    expect(breakpoints({ cache_control: control("1h"), messages })).toEqual([
      "system 1h",
      "own -",
      "u2 -",
      "u3 -",
    ]);
    const hour = [SYSTEM, ...TURNS.slice(0, 2), marked("own", "1h"), ...TURNS.slice(3)];
    expect(breakpoints({ cache_control: control(), tools, messages: hour })).toEqual([
      "own 1h",
      "u3 -",
    ]);
  });

  test("inside a tool's result count among the four", () => {
    const inside = { type: "text", text: "blue", cache_control: control() };
    const messages = [
      ...TURNS,
      { role: "assistant", content: null, tool_calls: [] },
      { role: "tool", tool_call_id: "a", content: [inside, inside, inside] },
    ];
    expect(
      breakpoints({ cache_control: control(), tools, messages: [SYSTEM, ...messages] }),
    ).toEqual(["system -"]);
  });
});

describe("reasoning of earlier answers", () => {
  const format = "anthropic-claude-v1";
  const answer = (reasoning_details: unknown, rest: Fields = {}) =>
    (
      messagesOf([
        ...HELLO,
        { role: "assistant", content: "so", reasoning_details, ...rest },
        ...HELLO,
      ]) as {
        content: Fields[];
      }[]
    )[1]!.content;
  const thinking = { type: "thinking", thinking: "hm", signature: "sig" };
  const text = { type: "text", text: "so" };

  test("comes back with its signature, encrypted or not, before what was said", () => {
    expect(
      answer([
        { type: "reasoning.text", text: "hm", signature: "sig", format, index: 0 },
        { type: "reasoning.encrypted", data: "xyz", format, index: 1 },
      ]),
    ).toEqual([thinking, { type: "redacted_thinking", data: "xyz" }, text]);
  });

  test("is put together from the pieces of a stream, with indices and without", () => {
    const pieces = (index?: number) => [
      { type: "reasoning.text", text: "h", format, index },
      { type: "reasoning.text", text: "m", format, index },
      { type: "reasoning.text", signature: "sig", format, index },
    ];
    expect(answer(pieces(0))).toEqual([thinking, text]);
    expect(answer([...pieces(), ...pieces()])).toEqual([thinking, thinking, text]);
    expect(answer([...pieces(0), ...pieces(1)])).toEqual([thinking, thinking, text]);
  });

  test("stands where it stood between text and calls", () => {
    const tool_calls = [{ id: "a", type: "function", function: { name: "look", arguments: "{}" } }];
    const details = [0, 2].map((index) => ({
      type: "reasoning.text",
      text: "hm",
      signature: "sig",
      format,
      index,
    }));
    const call = { type: "tool_use", id: "a", name: "look", input: {} };
    expect(answer(details, { tool_calls })).toEqual([thinking, text, thinking, call]);
  });

  test("of other wires, without a signature, or of no shape at all is left out", () => {
    for (const details of [
      [{ type: "reasoning.text", text: "hm", signature: "sig", format: "google-gemini-v1" }],
      [{ type: "reasoning.text", text: "hm" }],
      [{ type: "reasoning.summary", summary: "hm" }],
      [{ type: "reasoning.encrypted", data: 5 }, { type: 5 }],
      [],
    ]) {
      expect(answer(details)).toEqual([text]);
    }
  });
});

describe("tools", () => {
  test.each<[unknown, Fields | undefined]>([
    [undefined, undefined],
    ["auto", { type: "auto" }],
    ["none", { type: "none" }],
    ["required", { type: "any" }],
    [
      { type: "function", function: { name: "look" } },
      { type: "tool", name: "look" },
    ],
    [{ type: "allowed_tools", allowed_tools: { mode: "auto", tools: [TOOL] } }, { type: "auto" }],
    [
      { type: "allowed_tools", allowed_tools: { mode: "required", tools: [TOOL] } },
      { type: "any" },
    ],
  ])("tool_choice %j, in parallel or not", (tool_choice, wanted) => {
    expect(sent({ tools: [TOOL], tool_choice }).tool_choice).toEqual(wanted!);
    const serial = sent({ tools: [TOOL], tool_choice, parallel_tool_calls: false });
    expect(serial.tool_choice).toEqual(
      wanted?.type === "none"
        ? wanted
        : { ...(wanted ?? { type: "auto" }), disable_parallel_tool_use: true },
    );
  });

  test("only those that are allowed are offered", () => {
    const other = { type: "function", function: { name: "other" } };
    const allowed = { mode: "auto", tools: [{ type: "function", function: { name: "other" } }] };
    const tool_choice = { type: "allowed_tools", allowed_tools: allowed };
    expect(sent({ tools: [TOOL, other], tool_choice }).tools).toEqual([
      { name: "other", input_schema: { type: "object", properties: {} } },
    ]);
  });

  test("a tool's schema is passed on, and is closed where it is strict and the model holds to it", () => {
    const { parameters } = TOOL.function;
    const { description, name } = TOOL.function;
    const plain = { name, description, input_schema: parameters };
    expect(sent({ tools: [TOOL] }).tools).toEqual([plain]);
    const strict = { type: "function", function: { ...TOOL.function, strict: true } };
    expect(sent({ tools: [strict] }).tools).toEqual([
      { ...plain, strict: true, input_schema: { ...parameters, additionalProperties: false } },
    ]);
    expect(sent({ tools: [strict] }, "claude-3-5-haiku-latest").tools).toEqual([plain]);
  });

  test("without tools there is no tool_choice", () => {
    const body = sent({ tools: [], tool_choice: "auto", parallel_tool_calls: false });
    expect(body).not.toContainKeys(["tools", "tool_choice"]);
  });
});

describe("JSON", () => {
  const schema = {
    $schema: "http://json-schema.org/draft-07/schema#",
    type: "object",
    properties: {
      age: { type: "integer", minimum: 0, description: "In years" },
      kind: {
        oneOf: [
          { type: "string", format: "uuid" },
          { type: "string", format: "ean" },
        ],
      },
      tags: { type: "array", items: { type: "string", maxLength: 5 }, minItems: 1, maxItems: 3 },
      deep: { $ref: "#/$defs/deep" },
    },
    $defs: { deep: { type: "object", properties: {} } },
    required: ["age"],
  };
  const response_format = { type: "json_schema", json_schema: { name: "person", schema } };

  test("a schema is held to, with limits that the decoder does not know in descriptions", () => {
    expect(sent({ response_format }, "claude-sonnet-4-5-20250929").output_config).toEqual({
      format: {
        type: "json_schema",
        schema: {
          type: "object",
          properties: {
            age: { type: "integer", description: "In years\nminimum: 0" },
            kind: {
              anyOf: [
                { type: "string", format: "uuid" },
                { type: "string", description: 'format: "ean"' },
              ],
            },
            tags: {
              type: "array",
              items: { type: "string", description: "maxLength: 5" },
              minItems: 1,
              description: "maxItems: 3",
            },
            deep: { $ref: "#/$defs/deep" },
          },
          $defs: { deep: { type: "object", properties: {}, additionalProperties: false } },
          required: ["age"],
          additionalProperties: false,
        },
      },
    });
  });

  test("an older model answers by calling a tool with that schema, or one of the caller's", () => {
    const forced = sent({ response_format }, "claude-3-5-haiku-latest");
    expect(forced).toMatchObject({
      tools: [{ name: "answer_in_json", input_schema: schema }],
      tool_choice: { type: "tool", name: "answer_in_json", disable_parallel_tool_use: true },
    });
    const choosing = sent({ response_format, tools: [TOOL] }, "claude-3-5-haiku-latest");
    expect(choosing).toMatchObject({
      tools: [{ name: "look" }, { name: "answer_in_json" }],
      tool_choice: { type: "any", disable_parallel_tool_use: true },
    });
  });

  test("text asks for nothing", () => {
    expect(sent({ response_format: { type: "text" } })).toEqual(sent({}));
  });
});

describe("thinking", () => {
  const budget = (fields: Fields, max_tokens = 10_000) => {
    const { thinking, output_config } = sent({ ...fields, max_tokens }, "claude-haiku-4-5");
    expect(output_config).toBeUndefined();
    return thinking as Fields | undefined;
  };

  test.each<[Fields, number | undefined]>([
    [{ reasoning_effort: "minimal" }, 1_024],
    [{ reasoning_effort: "low" }, 2_000],
    [{ reasoning_effort: "medium" }, 5_000],
    [{ reasoning_effort: "high" }, 8_000],
    [{ reasoning: { effort: "xhigh" } }, 9_500],
    [{ reasoning: { enabled: true } }, 5_000],
    [{ reasoning: { max_tokens: 3_000 } }, 3_000],
    [{ reasoning: { max_tokens: 10 } }, 1_024],
    [{ reasoning: { max_tokens: 99_000 } }, 9_999],
    [{ reasoning: { exclude: true } }, undefined],
    [{ reasoning: { enabled: false } }, undefined],
    [{ reasoning_effort: "none" }, undefined],
  ])("%j is a budget below the limit", (fields, tokens) => {
    expect(budget(fields)).toEqual(
      tokens === undefined ? undefined : { type: "enabled", budget_tokens: tokens },
    );
  });

  test("a limit without room for the least budget leaves none, and a wide one has a cap", () => {
    expect(budget({ reasoning_effort: "high" }, 1_024)).toBeUndefined();
    expect(budget({ reasoning_effort: "high" }, 1_025)).toEqual({
      type: "enabled",
      budget_tokens: 1_024,
    });
    expect(budget({ reasoning_effort: "high" }, 64_000)?.budget_tokens).toBe(32_000);
  });

  test.each<[string, Fields, Fields | undefined, string | undefined]>([
    [
      "claude-opus-5",
      { reasoning_effort: "low" },
      { type: "adaptive", display: "summarized" },
      "low",
    ],
    [
      "claude-opus-5",
      { reasoning_effort: "xhigh" },
      { type: "adaptive", display: "summarized" },
      "xhigh",
    ],
    [
      "claude-opus-4-6",
      { reasoning_effort: "xhigh" },
      { type: "adaptive", display: "summarized" },
      "high",
    ],
    [
      "claude-opus-4-6",
      { reasoning: { max_tokens: 2_000 } },
      { type: "enabled", budget_tokens: 2_000 },
      undefined,
    ],
    [
      "claude-opus-5",
      { reasoning: { max_tokens: 2_000 } },
      { type: "adaptive", display: "summarized" },
      undefined,
    ],
    ["claude-opus-5", { reasoning_effort: "none" }, { type: "disabled" }, undefined],
    ["claude-fable-5", { reasoning_effort: "none" }, undefined, undefined],
    ["claude-opus-5", {}, undefined, undefined],
    ["claude-3-5-haiku-latest", { reasoning_effort: "low" }, undefined, undefined],
  ])("%s with %j", (model, fields, thinking, effort) => {
    const body = sent(fields, model);
    expect(body.thinking).toEqual(thinking!);
    expect((body.output_config as Fields | undefined)?.effort).toBe(effort);
  });

  test("by a budget is left out where calls come back without their thinking", () => {
    const tool_calls = [{ id: "a", type: "function", function: { name: "look", arguments: "{}" } }];
    const signed = [{ type: "reasoning.text", text: "hm", signature: "sig" }];
    const messages = (details?: unknown) => [
      ...HELLO,
      {
        role: "assistant",
        tool_calls,
        ...(details !== undefined && { reasoning_details: details }),
      },
      { role: "tool", tool_call_id: "a", content: "blue" },
      { role: "tool", tool_call_id: "b", content: "wet" },
    ];
    const asked = { reasoning_effort: "low" };
    expect(budget({ ...asked, messages: messages() })).toBeUndefined();
    expect(budget({ ...asked, messages: messages(signed) })).toBeDefined();
    expect(budget({ ...asked, messages: [...messages(), ...HELLO] })).toBeDefined();
    expect(sent({ ...asked, messages: messages() }).thinking).toBeDefined();
    const missing = anthropicFields("anthropic").unsupported(
      "reasoning_effort",
      "low",
      { model: "claude-haiku-4-5", modelId: "anthropic/claude-haiku-4-5" },
      true,
      { ...asked, messages: messages() },
    );
    expect(missing).toEqual(["reasoning_effort"]);
  });

  test.each<[string, Fields, Fields | undefined, string | undefined]>([
    [
      "claude-haiku-4-5",
      { thinking: { type: "enabled", budget_tokens: 2_000 } },
      { type: "enabled", budget_tokens: 2_000 },
      undefined,
    ],
    [
      "claude-haiku-4-5",
      { thinking: { type: "adaptive" } },
      { type: "enabled", budget_tokens: 5_000 },
      undefined,
    ],
    ["claude-haiku-4-5", { thinking: { type: "disabled" } }, undefined, undefined],
    [
      "claude-opus-5",
      { thinking: { type: "adaptive", display: "omitted" }, reasoning_effort: "low" },
      { type: "adaptive", display: "omitted" },
      "low",
    ],
    [
      "claude-opus-5",
      { thinking: { type: "disabled" }, reasoning: { effort: "high" } },
      { type: "disabled" },
      undefined,
    ],
    [
      "claude-opus-5",
      { thinking: { type: "enabled", budget_tokens: 2_000 } },
      { type: "adaptive", display: "summarized" },
      undefined,
    ],
    ["claude-opus-5", { thinking: { type: "unheard_of" } }, undefined, undefined],
  ])("%s with %j in Anthropic's own form", (model, fields, thinking, effort) => {
    const body = sent(fields, model);
    expect(body.thinking).toEqual(thinking!);
    expect((body.output_config as Fields | undefined)?.effort).toBe(effort);
  });

  test("between calls of tools needs a beta where it has a budget", () => {
    const asked = { reasoning_effort: "low", tools: [TOOL], interleaved_thinking: true };
    const betas = (fields: Fields, model: string) => rendered(fields, model).betas;
    expect(betas(asked, "claude-haiku-4-5")).toEqual(["interleaved-thinking-2025-05-14"]);
    expect(betas(asked, "claude-opus-5")).toEqual([]);
    for (const absent of ["reasoning_effort", "tools", "interleaved_thinking"]) {
      expect(betas({ ...asked, [absent]: undefined }, "claude-haiku-4-5")).toEqual([]);
    }
  });

  test("is left out where a tool is demanded", () => {
    const fields = { reasoning_effort: "high", tools: [TOOL], tool_choice: "required" };
    expect(sent(fields).thinking).toBeUndefined();
  });
});

test("other fields have Anthropic's names", () => {
  expect(
    sent({
      stop: "END",
      temperature: 0.5,
      top_p: 0.9,
      top_k: 5,
      user: "u-1",
      service_tier: "standard_only",
      seed: 5,
    }),
  ).toEqual({
    model: "claude-opus-5",
    max_tokens: 10_000,
    messages: [{ role: "user", content: [{ type: "text", text: "hello" }] }],
    stop_sequences: ["END"],
    temperature: 0.5,
    top_p: 0.9,
    top_k: 5,
    metadata: { user_id: "u-1" },
    service_tier: "standard_only",
  });
});

describe("what a model lacks is named", () => {
  const missing = (
    field: string,
    value: unknown,
    model = "claude-opus-4-5",
    request: Fields = {},
  ) =>
    anthropicFields("anthropic").unsupported(
      field,
      value,
      { model, modelId: `anthropic/${model}` },
      true,
      { [field]: value, ...request },
    );

  type Row = [field: string, value: unknown, model?: string, request?: Fields];
  const filled = (rows: Row[]) =>
    rows.map(([field, value, model = "claude-opus-4-5", request = {}]) => {
      return [field, value, model, request] as const;
    });

  test.each(
    filled([
      ["n", 2],
      ["logprobs", true],
      ["seed", 5],
      ["x_unheard_of", 1],
      ["functions", [{ name: "f" }]],
      ["tools", [TOOL, { type: "custom", custom: { name: "c" } }]],
      ["tool_choice", { type: "custom", custom: { name: "c" } }],
      ["tool_choice", "required", "claude-opus-5-5"],
      ["response_format", { type: "json_object" }, "claude-opus-5-5"],
      ["stop", ["END", "\n\n"]],
      ["temperature", 1.5],
      ["temperature", 0.5, "claude-opus-5"],
      ["temperature", 0.5, "claude-opus-4-5", { reasoning_effort: "low" }],
      ["top_p", 0.5, "claude-opus-4-5", { temperature: 0.5 }],
      ["top_k", 5, "claude-sonnet-5"],
      ["user", "x".repeat(257)],
      ["service_tier", "flex"],
      ["reasoning_effort", "low", "claude-3-5-haiku-latest"],
      ["reasoning_effort", "low", "claude-opus-4-5", { tool_choice: "required" }],
      ["reasoning_effort", "low", "claude-opus-4-5", { response_format: { type: "json_object" } }],
      ["reasoning_effort", "low", "claude-opus-4-5", { max_tokens: 1_000 }],
      ["reasoning_effort", "none", "claude-fable-5"],
      ["reasoning", { max_tokens: 2_000 }, "claude-opus-4-5", { max_tokens: 1_000 }],
      ["thinking", { type: "enabled", budget_tokens: 2_000 }, "claude-3-5-haiku-latest"],
      ["thinking", { type: "unheard_of" }],
      ["thinking", "enabled"],
      ["interleaved_thinking", true],
      ["interleaved_thinking", true, "claude-3-7-sonnet-latest", { reasoning_effort: "low" }],
    ]),
  )("%s %j of %s", (field, value, model, request) => {
    expect(missing(field, value, model, request)).toEqual([field]);
  });

  test.each(
    filled([
      ["tools", [TOOL]],
      ["tool_choice", "required"],
      ["response_format", { type: "json_object" }],
      ["response_format", { type: "json_schema", json_schema: {} }, "claude-opus-5-5"],
      ["stop", ["END"]],
      ["temperature", 0.5],
      ["top_p", 0.5],
      ["user", "someone"],
      ["cache_control", { type: "ephemeral" }],
      ["reasoning_effort", "low", "claude-opus-5", { max_tokens: 100 }],
      ["reasoning", { exclude: true }, "claude-3-5-haiku-latest"],
      ["reasoning", { effort: "none" }, "claude-3-5-haiku-latest"],
      ["reasoning", { max_tokens: 2_000 }],
      ["thinking", { type: "enabled", budget_tokens: 2_000 }],
      ["thinking", { type: "disabled" }],
      ["thinking", { type: "adaptive" }, "claude-opus-5"],
      ["interleaved_thinking", true, "claude-opus-5", { reasoning_effort: "low" }],
      ["interleaved_thinking", false, "claude-3-5-haiku-latest"],
    ]),
  )("but not %s %j of %s", (field, value, model, request) => {
    expect(missing(field, value, model, request)).toEqual([]);
  });

  test("of reasoning, what is not followed is named by its member", () => {
    const value = { effort: "low", max_tokens: 2_000, summary: "auto" };
    expect(missing("reasoning", value, "claude-opus-5")).toEqual([
      "reasoning.max_tokens",
      "reasoning.summary",
    ]);
    const enabled = { type: "enabled", budget_tokens: 2_000 };
    expect(missing("thinking", enabled, "claude-opus-5")).toEqual(["thinking.budget_tokens"]);
    expect(missing("thinking", { type: "adaptive" })).toEqual(["thinking.type"]);
  });
});

test("a message may have more parts than a function can have arguments", () => {
  const parts = Array.from({ length: 1_000_000 }, () => ({ type: "text", text: "a" }));
  const [turn] = messagesOf([...HELLO, { role: "user", content: parts }]) as {
    content: unknown[];
  }[];
  expect(turn!.content).toHaveLength(1_000_001);
});
