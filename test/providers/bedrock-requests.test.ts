import { describe, expect, test } from "bun:test";
import { converseBody } from "../../src/providers/bedrock/converse-body.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import { startStopwatch } from "../support/stopwatch.ts";

type Fields = Record<string, unknown>;

const NOVA = "us.amazon.nova-pro-v1:0";
const NOVA_2 = "global.amazon.nova-2-lite-v1:0";
const LLAMA = "us.meta.llama3-3-70b-instruct-v1:0";
const QWEN = "qwen.qwen3-32b-v1:0";
const ANY = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3d4e5f6";
const HELLO = [{ role: "user", content: "hello" }];
const TOOL = {
  type: "function",
  function: {
    name: "look",
    description: "Looks somewhere",
    parameters: { type: "object", properties: { at: { type: "string" } } },
  },
};
const SPEC = {
  toolSpec: {
    name: "look",
    description: "Looks somewhere",
    inputSchema: { json: TOOL.function.parameters },
  },
};

function rendered(fields: Fields, model = NOVA) {
  return converseBody.render({ messages: HELLO, ...fields }, { model, modelId: undefined });
}

/** What Bedrock gets. */
function sent(fields: Fields, model = NOVA): Fields {
  return JSON.parse(rendered(fields, model).body as string) as Fields;
}

const messagesOf = (messages: readonly Fields[], model = NOVA, more: Fields = { tools: [TOOL] }) =>
  sent({ messages, ...more }, model).messages;

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

const call = (id: string, text: string) => ({
  id,
  type: "function",
  function: { name: "look", arguments: text },
});

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
    expect(body).toEqual({
      system: [{ text: "Be brief." }, { text: "Be kind." }],
      messages: [{ role: "user", content: [{ text: "hello" }, { text: "again" }] }],
    });
  });

  test("models without a system prompt get it before what the user says", () => {
    const messages = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "hello" },
    ];
    expect(sent({ messages }, "mistral.mistral-7b-instruct-v0:2")).toEqual({
      messages: [{ role: "user", content: [{ text: "Be brief." }, { text: "hello" }] }],
    });
  });

  test("parallel calls and their results: one turn of each side, results before what the user says", () => {
    const long = `call_${"x".repeat(80)}|fc_1`;
    const turns = messagesOf([
      ...HELLO,
      { role: "assistant", content: " ", tool_calls: [call("a", '{"at":"sky"}'), call(long, "")] },
      { role: "tool", tool_call_id: "a", content: "blue" },
      { role: "tool", tool_call_id: long, content: [{ type: "text", text: "wet" }] },
      { role: "user", content: "and?" },
    ]) as { content: Fields[] }[];
    const id = (turns[1]!.content[1]!.toolUse as Fields).toolUseId as string;
    expect(id).toMatch(/^[a-zA-Z0-9_.:-]{64}$/);
    expect(turns.slice(1)).toEqual([
      {
        role: "assistant",
        content: [
          { toolUse: { toolUseId: "a", name: "look", input: { at: "sky" } } },
          { toolUse: { toolUseId: id, name: "look", input: {} } },
        ],
      },
      {
        role: "user",
        content: [
          { toolResult: { toolUseId: "a", content: [{ text: "blue" }] } },
          { toolResult: { toolUseId: id, content: [{ text: "wet" }] } },
          { text: "and?" },
        ],
      },
    ] as never);
  });

  test("Mistral's models get ids of their form, the same in calls and results", () => {
    const turns = messagesOf(
      [
        ...HELLO,
        { role: "assistant", tool_calls: [call("AbC123xyz", "{}"), call("call_abc", "{}")] },
        { role: "tool", tool_call_id: "AbC123xyz", content: "a" },
        { role: "tool", tool_call_id: "call_abc", content: "b" },
      ],
      "mistral.mistral-large-3-675b-instruct",
    ) as { content: Record<string, { toolUseId: string }>[] }[];
    const calls = turns[1]!.content.map(({ toolUse }) => toolUse!.toolUseId);
    expect(calls[0]).toBe("AbC123xyz");
    expect(calls[1]).toMatch(/^[a-zA-Z0-9]{9}$/);
    expect(turns[2]!.content.map(({ toolResult }) => toolResult!.toolUseId)).toEqual(calls);
  });

  test.each(['{"at": sky', "[1]", '"text"'])(
    "arguments that are no object go in one: %s",
    (text) => {
      const turns = messagesOf([...HELLO, { role: "assistant", tool_calls: [call("a", text)] }]);
      const input = { INVALID_JSON: text };
      expect(turns).toContainEqual({
        role: "assistant",
        content: [{ toolUse: { toolUseId: "a", name: "look", input } }],
      } as never);
    },
  );

  test("where no tool can be called, earlier calls and results are told", () => {
    const messages = [
      ...HELLO,
      { role: "assistant", content: null, tool_calls: [call("a", '{"at":"sky"}')] },
      { role: "tool", tool_call_id: "a", content: "blue" },
    ];
    const told = [
      { role: "user", content: [{ text: "hello" }] },
      { role: "assistant", content: [{ text: 'I called look with {"at":"sky"}.' }] },
      { role: "user", content: [{ text: "The call resulted in:" }, { text: "blue" }] },
    ];
    expect(sent({ messages })).toEqual({ messages: told });
    expect(sent({ messages, tools: [TOOL], tool_choice: "none" })).toEqual({ messages: told });
  });

  test("signed and redacted reasoning goes back to its place, in pieces or whole; no other does", () => {
    const format = "amazon-bedrock-v1";
    const details = [
      { type: "reasoning.text", text: "I ", format, index: 0 },
      { type: "reasoning.text", text: "look.", format, index: 0 },
      { type: "reasoning.text", signature: "sig==", format, index: 0 },
      { type: "reasoning.encrypted", data: "c2VjcmV0", format, index: 2 },
      { type: "reasoning.text", text: "unsigned", format, index: 3 },
      {
        type: "reasoning.text",
        text: "x",
        signature: "y",
        format: "anthropic-claude-v1",
        index: 4,
      },
    ];
    const turns = messagesOf([
      ...HELLO,
      {
        role: "assistant",
        content: "Well.",
        tool_calls: [call("a", "{}")],
        reasoning_details: details,
      },
    ]);
    expect(turns).toContainEqual({
      role: "assistant",
      content: [
        { reasoningContent: { reasoningText: { text: "I look.", signature: "sig==" } } },
        { text: "Well." },
        { reasoningContent: { redactedContent: "c2VjcmV0" } },
        { toolUse: { toolUseId: "a", name: "look", input: {} } },
      ],
    } as never);
  });
});

describe("media", () => {
  const contentOf = (...content: Fields[]) =>
    (messagesOf([{ role: "user", content }]) as { content: Fields[] }[])[0]!.content;
  const image = (url: string) => ({ type: "image_url", image_url: { url } });
  const file = (file_data: string, filename?: string) => ({
    type: "file",
    file: { file_data, filename },
  });

  test("images, documents, video and sound go as bytes", () => {
    expect(
      contentOf(
        image("data:image/jpg;base64,AAAA"),
        { type: "video_url", video_url: { url: "data:video/mp4;base64,BBBB" } },
        { type: "input_audio", input_audio: { data: "CCCC", format: "mp3" } },
        file("data:application/pdf;base64,DDDD", "q3 report_(final).pdf"),
        file("data:text/plain;base64,EEEE", "q3 report_(final).txt"),
        { type: "text", text: "What is it?" },
      ),
    ).toEqual([
      { image: { format: "jpeg", source: { bytes: "AAAA" } } },
      { video: { format: "mp4", source: { bytes: "BBBB" } } },
      { audio: { format: "mp3", source: { bytes: "CCCC" } } },
      { document: { format: "pdf", name: "q3 report-(final)", source: { bytes: "DDDD" } } },
      { document: { format: "txt", name: "q3 report-(final) 2", source: { bytes: "EEEE" } } },
      { text: "What is it?" },
    ]);
  });

  test("thousands of documents of one name get names of their own, in time linear in them", () => {
    const parts = Array.from({ length: 20_000 }, () => file("data:text/plain,a", "a.txt"));
    const elapsedMs = startStopwatch();
    const content = contentOf(...parts, file("data:text/plain,a", "a 20001.txt"));
    // Counting from the beginning for each would take minutes.
    expect(elapsedMs()).toBeLessThan(5_000);
    const names = content.flatMap(({ document }) => (document ? [(document as Fields).name] : []));
    expect(names.slice(0, 2)).toEqual(["a", "a 2"]);
    expect(new Set(names).size).toBe(20_001);
  });

  test("a document alone gets the text that Bedrock demands beside it", () => {
    expect(contentOf(file("data:text/csv,a%2Cb"))).toEqual([
      { document: { format: "csv", name: "document", source: { bytes: "YSxi" } } },
      { text: "document" },
    ]);
  });

  test.each([
    ["the operator's file", image("s3://bucket/cat.png"), "messages.0.content.0.image_url"],
    ["an address", image("https://example.com/cat.png"), "messages.0.content.0.image_url"],
    [
      "an image of another kind",
      image("data:image/tiff;base64,AA"),
      "messages.0.content.0.image_url",
    ],
    ["a file's id", { type: "file", file: { file_id: "file-1" } }, "messages.0.content.0.file"],
    [
      "sound without a format",
      { type: "input_audio", input_audio: { data: "A" } },
      "messages.0.content.0.input_audio",
    ],
    ["an unknown part", { type: "hologram" }, "messages.0.content.0.type"],
  ])("%s is refused, and its place named", (_what, part, place) => {
    expect(refusedAt({ messages: [{ role: "user", content: [part] }] })).toBe(place);
  });
});

describe("tools", () => {
  test.each([
    [undefined, undefined],
    ["auto", { auto: {} }],
    ["required", { any: {} }],
    [{ type: "function", function: { name: "look" } }, { tool: { name: "look" } }],
  ])("a choice of %j", (choice, toolChoice) => {
    expect(
      sent({ tools: [TOOL], ...(choice !== undefined && { tool_choice: choice }) }).toolConfig,
    ).toEqual({
      tools: [SPEC],
      ...(toolChoice && { toolChoice }),
    } as never);
  });

  test("allowed tools are offered alone", () => {
    const other = { type: "function", function: { name: "run" } };
    const choice = (mode: string) => ({
      type: "allowed_tools",
      allowed_tools: { mode, tools: [{ type: "function", function: { name: "run" } }] },
    });
    const spec = {
      toolSpec: { name: "run", inputSchema: { json: { type: "object", properties: {} } } },
    };
    const config = (mode: string) =>
      sent({ tools: [TOOL, other], tool_choice: choice(mode) }).toolConfig;
    expect(config("required")).toEqual({ tools: [spec], toolChoice: { any: {} } } as never);
    expect(config("auto")).toEqual({ tools: [spec], toolChoice: { auto: {} } } as never);
  });

  test("Llama's answers with tools are not streamed", () => {
    expect(rendered({ tools: [TOOL] }, LLAMA).isStreamable).toBeFalse();
    expect(rendered({}, LLAMA).isStreamable).toBeTrue();
    expect(rendered({ tools: [TOOL] }, NOVA).isStreamable).toBeTrue();
  });
});

describe("JSON", () => {
  const schema = { type: "object", properties: { a: { type: "integer", minimum: 1 } } };
  const format = { type: "json_schema", json_schema: { name: "answer", schema } };

  test("is held to a schema where the model takes one", () => {
    const body = sent({ response_format: format }, QWEN);
    const { textFormat } = body.outputConfig as { textFormat: { type: string; structure: Fields } };
    const { jsonSchema } = textFormat.structure as { jsonSchema: { name: string; schema: string } };
    expect(textFormat.type).toBe("json_schema");
    expect(jsonSchema.name).toBe("answer");
    expect(JSON.parse(jsonSchema.schema)).toEqual({
      type: "object",
      properties: { a: { type: "integer", description: "minimum: 1" } },
      additionalProperties: false,
    });
    expect(rendered({ response_format: format }, QWEN).answersByTool).toBeFalse();
  });

  test("comes as the input of a tool that has to be called elsewhere, and without a schema", () => {
    for (const [model, response_format] of [
      [NOVA, format],
      [QWEN, { type: "json_object" }],
    ] as const) {
      const { toolConfig } = sent({ response_format }, model) as {
        toolConfig: { tools: Fields[] };
      };
      expect(toolConfig).toMatchObject({ toolChoice: { tool: { name: "answer_in_json" } } });
      expect(toolConfig.tools).toHaveLength(1);
      expect(rendered({ response_format }, model).answersByTool).toBeTrue();
    }
    expect(sent({ response_format: format, tools: [TOOL] }).toolConfig).toMatchObject({
      tools: [SPEC, { toolSpec: { name: "answer_in_json" } }],
      toolChoice: { any: {} },
    });
  });
});

describe("caching", () => {
  const cache_control = { type: "ephemeral", ttl: "1h" };
  const fields = {
    tools: [{ ...TOOL, cache_control }],
    messages: [
      { role: "system", content: [{ type: "text", text: "Long.", cache_control }] },
      { role: "user", content: "hello", cache_control },
      { role: "assistant", tool_calls: [call("a", "{}")] },
      { role: "tool", tool_call_id: "a", content: [{ type: "text", text: "x", cache_control }] },
    ],
  };
  const hour = { cachePoint: { type: "default", ttl: "1h" } };
  const plain = { cachePoint: { type: "default" } };

  test("breakpoints follow what they end, with their lifetime", () => {
    const { system, messages, toolConfig } = sent(fields, ANY) as Record<string, Fields[]> & Fields;
    expect(system).toEqual([{ text: "Long." }, hour]);
    expect(toolConfig).toEqual({ tools: [SPEC, hour] } as never);
    expect(messages![0]!.content).toEqual([{ text: "hello" }, hour]);
    expect(messages![2]!.content).toEqual([
      { toolResult: { toolUseId: "a", content: [{ text: "x" }] } },
      hour,
    ]);
  });

  test("Nova has them in the prompt alone, not behind tools and their results", () => {
    const { system, messages, toolConfig } = sent(fields, NOVA) as Record<string, Fields[]> &
      Fields;
    expect(system).toEqual([{ text: "Long." }, plain]);
    expect(toolConfig).toEqual({ tools: [SPEC] } as never);
    expect(messages![0]!.content).toEqual([{ text: "hello" }, plain]);
    expect(messages![2]!.content).toEqual([
      { toolResult: { toolUseId: "a", content: [{ text: "x" }] } },
    ]);
  });

  test("a breakpoint that is left to the provider ends the prompt; models without a cache get none", () => {
    const request = { cache_control: { type: "ephemeral" } };
    expect(sent(request).messages).toEqual([{ role: "user", content: [{ text: "hello" }, plain] }]);
    expect(sent(fields, QWEN).system).toEqual([{ text: "Long." }]);
  });
});

test("sampling, limits and reasoning go by Bedrock's names", () => {
  const fields = { max_tokens: 50, temperature: 0.5, top_p: 0.9, top_k: 20, stop: ["a", "b"] };
  expect(sent({ ...fields, reasoning_effort: "high" }, NOVA_2)).toEqual({
    messages: [{ role: "user", content: [{ text: "hello" }] }],
    inferenceConfig: { maxTokens: 50, temperature: 0.5, topP: 0.9, stopSequences: ["a", "b"] },
    additionalModelRequestFields: {
      inferenceConfig: { topK: 20 },
      reasoningConfig: { type: "enabled", maxReasoningEffort: "medium" },
    },
  });
  expect(
    sent({ reasoning_effort: "high" }, "us.openai.gpt-5.6-sol").additionalModelRequestFields,
  ).toEqual({ reasoning: { effort: "high" } });
  const oss = "openai.gpt-oss-120b-1:0";
  expect(sent({ reasoning: { effort: "minimal" } }, oss).additionalModelRequestFields).toEqual({
    reasoning_effort: "low",
  });
  expect(
    sent({ reasoning: { effort: "none" } }, NOVA_2).additionalModelRequestFields,
  ).toBeUndefined();
});

test("a message may have more parts than a function can have arguments", () => {
  const parts = Array.from({ length: 1_000_000 }, () => ({ type: "text", text: "a" }));
  const messages = [...HELLO, { role: "user", content: parts }];
  const [turn] = messagesOf(messages) as { content: unknown[] }[];
  expect(turn!.content).toHaveLength(1_000_001);
});
