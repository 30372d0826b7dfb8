import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { ShortBody } from "../../src/providers/chat-body.ts";
import { geminiFields } from "../../src/providers/gemini/chat-fields.ts";
import { generationOf } from "../../src/providers/gemini/model-generation.ts";
import { geminiBody } from "../../src/providers/gemini/request-body.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import { geminiRecordings } from "../upstream/gemini-recordings.ts";

/** What Google gets for a chat in OpenAI's words. */

type Fields = Record<string, unknown>;

function sent(fields: Fields, model = "gemini-2.5-flash"): Fields {
  const request = { messages: [{ role: "user", content: "hi" }], ...fields };
  const { body } = new ShortBody(request).render(geminiBody, { model, modelId: undefined });
  return JSON.parse(body as string);
}

const configOf = (fields: Fields, model?: string) => sent(fields, model).generationConfig;
const contentsOf = (messages: readonly Fields[], model?: string) =>
  sent({ messages }, model).contents;

/** The failure that a request is refused with. */
function refused(fields: Fields): ProviderFailure {
  try {
    sent(fields);
  } catch (error) {
    if (error instanceof ProviderFailure) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

test("a plain request brings its messages and nothing else", () => {
  expect(sent({})).toEqual({ contents: [{ role: "user", parts: [{ text: "hi" }] }] });
});

test("the request that a recorded conversation has sent comes out of its chat", () => {
  const [, , , , , , second] = geminiRecordings();
  const recorded = second!.request as { contents: Fields[] };
  const [asked, called, result] = recorded.contents as { parts: Fields[] }[];
  const { functionCall, thoughtSignature } = called!.parts[0] as {
    functionCall: { id: string };
  } & Fields;
  const { id } = functionCall;
  const call = { id, type: "function", function: { name: "get_country", arguments: "{}" } };
  const detail = {
    type: "reasoning.encrypted",
    data: thoughtSignature,
    id,
    format: "google-gemini-v1",
  };
  const contents = contentsOf([
    { role: "user", content: asked!.parts[0]!.text },
    { role: "assistant", content: null, tool_calls: [call], reasoning_details: [detail] },
    { role: "tool", tool_call_id: id, content: '{"return_value":"Mexico"}' },
  ]);
  expect(contents).toEqual([asked, called, result]);
});

test("system messages before all others are the instruction, later ones stand in their place", () => {
  const { systemInstruction, contents } = sent({
    messages: [
      { role: "system", content: "Be brief." },
      { role: "developer", content: [{ type: "text", text: "Be kind." }] },
      { role: "user", content: "hi" },
      { role: "system", content: "Now shout." },
    ],
  });
  expect(systemInstruction).toEqual({
    role: "user",
    parts: [{ text: "Be brief." }, { text: "Be kind." }],
  });
  expect(contents).toEqual([
    { role: "user", parts: [{ text: "hi" }] },
    { role: "user", parts: [{ text: "Now shout." }] },
  ]);
  // A request needs contents.
  expect(sent({ messages: [{ role: "system", content: "Alone." }] })).toEqual({
    contents: [{ role: "user", parts: [{ text: "Alone." }] }],
  });
});

test("media are sent as data or as an address, by their type", () => {
  const part = (content: Fields) =>
    (contentsOf([{ role: "user", content: [content] }]) as { parts: Fields[] }[])[0]!.parts[0];
  const image = (url: string) => part({ type: "image_url", image_url: { url, detail: "high" } });
  expect(image("data:image/png;base64,QUJD")).toEqual({
    inlineData: { mimeType: "image/png", data: "QUJD" },
  });
  expect(image("https://host.test/a/b.JPG?size=1")).toEqual({
    fileData: { mimeType: "image/jpeg", fileUri: "https://host.test/a/b.JPG?size=1" },
  });
  expect(image("https://host.test/picture")).toEqual({
    fileData: { fileUri: "https://host.test/picture" },
  });
  expect(image("https://host.test/picture.webp")).toEqual({
    fileData: { mimeType: "image/webp", fileUri: "https://host.test/picture.webp" },
  });
  const sound = { type: "input_audio", input_audio: { data: "QUJD", format: "mp3" } };
  expect(part(sound)).toEqual({ inlineData: { mimeType: "audio/mp3", data: "QUJD" } });
  const pdf = "data:application/pdf;base64,QUJD";
  expect(part({ type: "file", file: { filename: "a.pdf", file_data: pdf } })).toEqual({
    inlineData: { mimeType: "application/pdf", data: "QUJD" },
  });
  const text = { type: "file", file: { file_data: "data:text/plain;charset=utf-8,a%20b%C3%A4" } };
  expect(part(text)).toEqual({ inlineData: { mimeType: "text/plain", data: "YSBiw6Q=" } });
  const video = { type: "video_url", video_url: { url: "https://youtube.com/watch?v=x" } };
  expect(part(video)).toEqual({ fileData: { fileUri: "https://youtube.com/watch?v=x" } });
});

describe("tool calls and results", () => {
  const call = (id: string, name: string, text: string) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  });
  const result = (id: string, content: unknown) => ({ role: "tool", tool_call_id: id, content });
  const model = (...parts: Fields[]) => ({ role: "model", parts });
  const user = (...parts: Fields[]) => ({ role: "user", parts });

  test("of one turn are one content each, and results name their functions", () => {
    const contents = contentsOf([
      { role: "user", content: "go" },
      {
        role: "assistant",
        content: "Looking.",
        tool_calls: [call("a", "sky", '{"at":1}'), call("b", "sea", "")],
      },
      result("b", "wet"),
      result("a", '{"blue":true}'),
      { role: "user", content: "and?" },
    ]);
    expect(contents).toEqual([
      user({ text: "go" }),
      model(
        { text: "Looking." },
        { functionCall: { id: "a", name: "sky", args: { at: 1 } } },
        { functionCall: { id: "b", name: "sea", args: {} } },
      ),
      user(
        { functionResponse: { id: "b", name: "sea", response: { output: "wet" } } },
        { functionResponse: { id: "a", name: "sky", response: { blue: true } } },
      ),
      user({ text: "and?" }),
    ]);
  });

  test("that are no objects are told under a name", () => {
    const odd = ["[1]", "{oh", `{"a":${"[".repeat(70)}${"]".repeat(70)}}`, "null"];
    for (const text of odd) {
      const contents = contentsOf([
        { role: "user", content: "go" },
        { role: "assistant", tool_calls: [call("a", "sky", text)] },
        result("a", text),
      ]) as { parts: Fields[] }[];
      expect(contents[1]!.parts[0]).toMatchObject({ functionCall: { args: { arguments: text } } });
      expect(contents[2]!.parts[0]).toMatchObject({
        functionResponse: { response: { output: text } },
      });
    }
  });

  test("with a picture bring it inside the result to Gemini 3, and behind it to others", () => {
    const url = "data:image/png;base64,QUJD";
    const messages = [
      { role: "user", content: "go" },
      { role: "assistant", tool_calls: [call("a", "shot", "{}")] },
      result("a", [
        { type: "text", text: "here" },
        { type: "image_url", image_url: { url } },
      ]),
    ];
    const picture = { inlineData: { mimeType: "image/png", data: "QUJD" } };
    const functionResponse = { id: "a", name: "shot", response: { output: "here" } };
    const last = (name: string) => (contentsOf(messages, name) as Fields[]).at(-1);
    expect(last("gemini-3-flash-preview")).toEqual(
      user({ functionResponse: { ...functionResponse, parts: [picture] } }),
    );
    expect(last("gemini-2.5-flash")).toEqual(user({ functionResponse }, picture));
  });

  test("of functions in the old form are calls without ids", () => {
    const contents = contentsOf([
      { role: "user", content: "go" },
      { role: "assistant", content: null, function_call: { name: "sky", arguments: "{}" } },
      { role: "function", name: "sky", content: "blue" },
    ]);
    expect(contents).toEqual([
      user({ text: "go" }),
      model({ functionCall: { name: "sky", args: {} } }),
      user({ functionResponse: { name: "sky", response: { output: "blue" } } }),
    ]);
  });

  test("without a signature get Google's stand-in with Gemini 3, on the first of a turn alone", () => {
    const contents = contentsOf(
      [
        { role: "user", content: "go" },
        { role: "assistant", tool_calls: [call("a", "x", "{}"), call("b", "x", "{}")] },
      ],
      "gemini-3.1-pro-preview",
    ) as { parts: Fields[] }[];
    expect(contents[1]!.parts.map((part) => part.thoughtSignature)).toEqual([
      "skip_thought_signature_validator",
      undefined,
    ]);
  });
});

test("signatures of other wires and pieces of thoughts lead back to the parts they came with", () => {
  const format = "google-gemini-v1";
  const contents = contentsOf([
    { role: "user", content: "go" },
    {
      role: "assistant",
      content: "Blue.",
      reasoning_details: [
        { type: "reasoning.text", text: "not ", signature: "s", format: "anthropic-claude-v1" },
        { type: "reasoning.text", text: "I ", format, index: 0 },
        { type: "reasoning.text", text: "look.", signature: "s1", format, index: 0 },
        { type: "reasoning.text", text: "Ah.", format, index: 1 },
        { type: "reasoning.encrypted", data: "s2", format, index: 2 },
        { type: "reasoning.encrypted", data: "other", format: "openai-responses-v1" },
        "nothing",
      ],
    },
  ]) as { parts: Fields[] }[];
  expect(contents[1]!.parts).toEqual([
    { text: "I look.", thought: true, thoughtSignature: "s1" },
    { text: "Ah.", thought: true },
    { text: "Blue.", thoughtSignature: "s2" },
  ]);
});

test("tools are declared by their JSON schema, and every form of a choice is told", () => {
  const parameters = { type: "object", properties: { a: { $ref: "#/$defs/x" } }, $defs: { x: {} } };
  const tool = (name: string, more: Fields = {}) => ({
    type: "function",
    function: { name, ...more },
  });
  const request = sent({ tools: [tool("a", { description: "does a", parameters }), tool("b")] });
  expect(request.tools).toEqual([
    {
      functionDeclarations: [
        { name: "a", description: "does a", parametersJsonSchema: parameters },
        { name: "b" },
      ],
    },
  ]);
  expect(request.toolConfig).toBeUndefined();
  const choice = (tool_choice: unknown, tools = [tool("a"), tool("b")]) =>
    (sent({ tools, tool_choice }).toolConfig as Fields | undefined)?.functionCallingConfig;
  expect(choice("auto")).toEqual({ mode: "AUTO" });
  expect(choice("none")).toEqual({ mode: "NONE" });
  expect(choice("required")).toEqual({ mode: "ANY" });
  expect(choice({ type: "function", function: { name: "b" } })).toEqual({
    mode: "ANY",
    allowedFunctionNames: ["b"],
  });
  const allowed = (mode: string) => ({
    type: "allowed_tools",
    allowed_tools: { mode, tools: [tool("a")] },
  });
  expect(choice(allowed("required"))).toEqual({ mode: "ANY", allowedFunctionNames: ["a"] });
  expect(choice(allowed("auto"))).toEqual({ mode: "VALIDATED", allowedFunctionNames: ["a"] });
  const strict = { tools: [tool("a", { strict: true })] };
  expect(sent(strict).toolConfig).toEqual({ functionCallingConfig: { mode: "VALIDATED" } });
  expect(sent(strict, "gemini-2.0-flash").toolConfig).toBeUndefined();
});

test("sampling, limits and formats have Gemini's names", () => {
  const sampling = {
    max_tokens: 9,
    n: 2,
    temperature: 0,
    top_p: 0.5,
    top_k: 3,
    frequency_penalty: 1,
    presence_penalty: -1,
    seed: 4,
    stop: ["x", ""],
    logprobs: true,
    top_logprobs: 2,
    safety_settings: [{ category: "c", threshold: "t" }],
  };
  expect(configOf(sampling)).toEqual({
    maxOutputTokens: 9,
    candidateCount: 2,
    temperature: 0,
    topP: 0.5,
    topK: 3,
    frequencyPenalty: 1,
    presencePenalty: -1,
    seed: 4,
    stopSequences: ["x"],
    responseLogprobs: true,
    logprobs: 2,
  });
  expect(sent(sampling).safetySettings).toEqual(sampling.safety_settings);
  expect(configOf({ n: 1, top_k: 0, stop: "", response_format: { type: "text" } })).toBeUndefined();
  expect(configOf({ stop: "x", response_format: { type: "json_object" } })).toEqual({
    stopSequences: ["x"],
    responseMimeType: "application/json",
  });
  const schema = { type: "object", additionalProperties: false };
  const format = { type: "json_schema", json_schema: { name: "a", schema } };
  expect(configOf({ response_format: format })).toEqual({
    responseMimeType: "application/json",
    responseJsonSchema: schema,
  });
});

describe("thinking", () => {
  const thinking = (fields: Fields, model: string) =>
    (configOf(fields, model) as { thinkingConfig?: Fields } | undefined)?.thinkingConfig;
  const effort = (name: string) => ({ reasoning: { effort: name } });

  test.each([
    ["gemini-2.5-flash", "none", { thinkingBudget: 0 }],
    ["gemini-2.5-flash", "low", { includeThoughts: true, thinkingBudget: 1_024 }],
    ["gemini-2.5-flash", "xhigh", { includeThoughts: true, thinkingBudget: 24_576 }],
    ["gemini-2.5-pro", "none", { thinkingBudget: 128 }],
    ["gemini-2.5-pro", "high", { includeThoughts: true, thinkingBudget: 24_576 }],
    ["gemini-2.5-pro", "max", { includeThoughts: true, thinkingBudget: 32_768 }],
    ["gemini-3-pro-preview", "medium", { includeThoughts: true, thinkingLevel: "HIGH" }],
    ["gemini-3-flash-preview", "minimal", { includeThoughts: true, thinkingLevel: "MINIMAL" }],
    ["gemini-3-flash-preview", "none", { thinkingLevel: "MINIMAL" }],
    ["gemini-3.5-flash-lite", "none", { thinkingLevel: "MINIMAL" }],
    ["gemini-3.8-flash", "minimal", { includeThoughts: true, thinkingLevel: "LOW" }],
    ["gemini-4-argon", "none", { thinkingLevel: "LOW" }],
    ["gemini-flash-latest", "medium", { includeThoughts: true, thinkingLevel: "MEDIUM" }],
    ["gemini-2.0-flash", "high", undefined],
    ["gemma-3-27b-it", "high", undefined],
  ])("of %s at effort %s", (model, name, expected) => {
    expect(thinking(effort(name), model)).toEqual(expected);
    expect(thinking({ reasoning_effort: name }, model)).toEqual(expected);
  });

  test("has the budget that is asked for, as far as the model goes", () => {
    const budget = (max_tokens: number, model: string) =>
      thinking({ reasoning: { max_tokens } }, model)?.thinkingBudget;
    expect(budget(2_000, "gemini-2.5-flash")).toBe(2_000);
    expect(budget(1, "gemini-2.5-pro")).toBe(128);
    expect(budget(1, "gemini-2.5-flash-lite")).toBe(512);
    expect(budget(100_000, "gemini-2.5-flash")).toBe(24_576);
    expect(thinking({ reasoning: { max_tokens: 5_000 } }, "gemini-3.8-flash")).toEqual({
      includeThoughts: true,
      thinkingLevel: "MEDIUM",
    });
  });

  test("is shown unless it is hidden, and left to the model where nothing is said", () => {
    const model = "gemini-2.5-flash";
    expect(thinking({ reasoning: { enabled: true } }, model)).toEqual({
      includeThoughts: true,
      thinkingBudget: -1,
    });
    expect(thinking({ reasoning: { effort: "low", exclude: true } }, model)).toEqual({
      thinkingBudget: 1_024,
    });
    expect(thinking({ reasoning: { enabled: false } }, model)).toEqual({ thinkingBudget: 0 });
    expect(thinking({ reasoning: { exclude: true } }, model)).toBeUndefined();
    expect(thinking({}, model)).toBeUndefined();
  });
});

test.each([
  [{ messages: [{ role: "user", content: [{ type: "hologram" }] }] }, "messages.0.content.0.type"],
  [
    { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "a.png" } }] }] },
    "messages.0.content.0",
  ],
  // Files that the operator has uploaded.
  ...[
    "https://generativelanguage.googleapis.com/v1beta/files/a-1",
    "https:\\\\GenerativeLanguage.googleapis.com./v1beta/files/a-1",
    "https://eu-generativelanguage.mtls.googleapis.com/v1beta/files/a-1",
  ].map((file_data): [Record<string, unknown>, string] => [
    { messages: [{ role: "user", content: [{ type: "file", file: { file_data } }] }] },
    "messages.0.content.0.file.file_data",
  ]),
  // A bucket that the operator's account may read.
  [
    {
      messages: [
        { role: "user", content: [{ type: "image_url", image_url: { url: "gs://b/a.png" } }] },
      ],
    },
    "messages.0.content.0",
  ],
  [
    {
      messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:x" } }] }],
    },
    "messages.0.content.0",
  ],
  [
    { messages: [{ role: "user", content: [{ type: "file", file: { file_id: "file-1" } }] }] },
    "messages.0.content.0.file",
  ],
  [{ messages: [{ role: "tool", tool_call_id: "a", content: "b" }] }, "messages.0.tool_call_id"],
  [
    { messages: [{ role: "assistant", tool_calls: [{ id: "a", custom: {} }] }] },
    "messages.0.tool_calls.0",
  ],
  [{ reasoning_effort: "huge" }, "reasoning_effort"],
  [{ reasoning: { effort: "huge" } }, "reasoning.effort"],
])("what Gemini cannot be told is refused by name (%#)", (fields, param) => {
  expect(refused(fields)).toMatchObject({ kind: "rejected", param });
});

test("whatever passes the schema is rendered, or refused by name", () => {
  const text = fc.constantFrom(
    "",
    "a",
    "{",
    '{"a":1}',
    "data:,",
    "data:image/png;base64,AA",
    "https://h/a.png",
  );
  const odd = fc.oneof(text, fc.constantFrom(null, 7, true, [], {}, { url: "data:x,y" }));
  const kinds = ["text", "refusal", "image_url", "video_url", "input_audio", "file", "other"];
  const part = fc.record(
    {
      type: fc.constantFrom(...kinds),
      text,
      refusal: odd,
      image_url: odd,
      video_url: odd,
      input_audio: fc.oneof(odd, fc.record({ data: odd, format: odd })),
      file: fc.oneof(odd, fc.record({ file_data: odd, file_id: odd })),
    },
    { requiredKeys: ["type"] },
  );
  const id = fc.constantFrom("", "a", "b");
  const called = fc.record({ name: text, arguments: text });
  const message = fc.record(
    {
      role: fc.constantFrom("system", "developer", "user", "assistant", "tool", "function"),
      content: fc.oneof(text, fc.constant(null), fc.array(part, { maxLength: 3 })),
      name: text,
      tool_call_id: id,
      tool_calls: fc.array(
        fc.record({ id, function: called, extra_content: odd }, { requiredKeys: [] }),
        { maxLength: 3 },
      ),
      function_call: odd,
      refusal: odd,
      reasoning_details: fc.oneof(
        odd,
        fc.array(
          fc.record({
            type: fc.constantFrom("reasoning.text", "reasoning.encrypted", "other"),
            format: fc.constantFrom("google-gemini-v1", null),
            id,
            text: odd,
            data: odd,
            signature: odd,
          }),
        ),
      ),
    },
    { requiredKeys: ["role"] },
  );
  const model = fc.constantFrom("gemini-2.0-flash", "gemini-3.8-flash");
  let rendered = 0;
  fc.assert(
    fc.property(fc.array(message, { minLength: 1, maxLength: 5 }), model, (messages, name) => {
      try {
        sent({ messages }, name);
        rendered++;
      } catch (error) {
        expect(error).toBeInstanceOf(ProviderFailure);
        expect((error as ProviderFailure).param).toStartWith("messages.");
      }
    }),
    { numRuns: 2_000 },
  );
  expect(rendered).toBeGreaterThan(100);
});

test("a model's name tells its generation, wherever it stands", () => {
  const version = (model: string, id?: string) => generationOf(model, id).version;
  expect(version("gemini-2.5-flash-preview-05-20")).toBe(205);
  expect(version("gemini-1.5-pro-002")).toBe(105);
  expect(version("models/gemini-3-pro-preview")).toBe(300);
  expect(version("gemini-live-2.5-flash")).toBe(205);
  expect(version("gemini-pro")).toBe(100);
  expect(version("gemini-exp-1206")).toBe(400);
  expect(version("my-tuned-one", "google/gemini-2.0-flash")).toBe(200);
  expect(version("gemma-3n")).toBe(0);
});

test("fields that the wire has not are lacked, whatever the model", () => {
  const fields = geminiFields("google");
  const model = { model: "gemini-2.0-flash", modelId: "google/gemini-2.0-flash" };
  const lacked = (field: string, value: unknown) =>
    fields.unsupported(field, value, model, true, {}).length > 0;
  for (const field of ["min_p", "top_a", "repetition_penalty", "logit_bias", "user", "verbosity"]) {
    expect(lacked(field, 1)).toBeTrue();
  }
  for (const field of [
    "temperature",
    "top_k",
    "seed",
    "presence_penalty",
    "response_format",
    "stop",
  ]) {
    expect(lacked(field, 1)).toBeFalse();
  }
  expect(lacked("seed", 2 ** 40)).toBeTrue();
});
