import { describe, expect, test } from "bun:test";
import {
  type ChatRequest,
  ITEM_FORM,
} from "../../src/inference/endpoints/chat-completions/request.ts";
import { chatRequestOf } from "../../src/inference/endpoints/responses/chat-request.ts";
import { encryptedContent } from "../../src/inference/endpoints/responses/reasoning-content.ts";
import type { Item, ResponsesBody } from "../../src/inference/endpoints/responses/request.ts";
import { assertResponses } from "../../src/inference/endpoints/responses/request-checks.ts";
import { factsOf } from "../../src/inference/endpoints/responses/request-facts.ts";
import { GatewayError } from "../../src/lib/errors.ts";

type Fields = Record<string, unknown>;

const bodyOf = (fields: Fields): ResponsesBody =>
  ({ model: "test/model", input: "hello", ...fields }) as ResponsesBody;
const turnOf = (
  fields: Fields,
  earlier: readonly Item[] = [],
  referable: readonly Item[] = [],
) => ({
  body: bodyOf(fields),
  earlier,
  referable,
});
const translated = (fields: Fields, earlier?: readonly Item[], referable?: readonly Item[]) =>
  chatRequestOf(turnOf(fields, earlier, referable));
/** Without its other form, which only some providers are sent. */
const chatOf = (fields: Fields) => plain(translated(fields).request);
const plain = ({ [ITEM_FORM]: _, ...request }: ChatRequest) => request;
const messagesOf = (input: readonly Fields[]) => chatOf({ input }).messages;

const said = (text: string, id = "msg_1") => ({
  type: "message",
  id,
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text, annotations: [] }],
});
const called = (callId: string) => ({
  type: "function_call",
  call_id: callId,
  name: "look",
  arguments: `{"at":"${callId}"}`,
});
const output = (callId: string, given: unknown = "seen") => ({
  type: "function_call_output",
  call_id: callId,
  output: given,
});
const chatCall = (id: string) => ({
  id,
  type: "function",
  function: { name: "look", arguments: `{"at":"${id}"}` },
});

describe("input becomes messages of the chat call", () => {
  test("text behind the instructions", () => {
    expect(chatOf({ instructions: "Be brief." }).messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "hello" },
    ]);
  });

  test("messages in both forms, of all roles, with all kinds of parts", () => {
    const messages = messagesOf([
      { role: "developer", content: "Be kind." },
      {
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: "See:" },
          { type: "input_image", image_url: "https://example.com/a.png", detail: "low" },
          { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" },
          { type: "input_file", file_url: "https://example.com/b.pdf" },
          { type: "input_file", file_id: "file-1" },
          { type: "input_audio", input_audio: { data: "AA==", format: "wav" } },
        ],
      },
      { role: "assistant", content: [{ type: "refusal", refusal: "No." }] },
      { role: "user", content: [{ type: "input_text", text: "Why?" }] },
    ]);
    expect(messages).toEqual([
      { role: "developer", content: "Be kind." },
      {
        role: "user",
        content: [
          { type: "text", text: "See:" },
          { type: "image_url", image_url: { url: "https://example.com/a.png", detail: "low" } },
          {
            type: "file",
            file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" },
          },
          { type: "file", file: { file_data: "https://example.com/b.pdf" } },
          { type: "file", file: { file_id: "file-1" } },
          { type: "input_audio", input_audio: { data: "AA==", format: "wav" } },
        ],
      },
      { role: "assistant", content: "No." },
      { role: "user", content: "Why?" },
    ]);
  });

  test("what the assistant thought, said and called in one go is one message", () => {
    const detail = { type: "reasoning.text", text: "Hm.", signature: "s", format: "f", index: 0 };
    const messages = messagesOf([
      { role: "user", content: "Look." },
      {
        type: "reasoning",
        id: "rs_1",
        summary: [{ type: "summary_text", text: "Hm." }],
        encrypted_content: encryptedContent([detail as never]),
      },
      said("Well."),
      called("a"),
      called("b"),
      output("a"),
      output("b", [{ type: "input_text", text: "dark" }]),
    ]);
    expect(messages.slice(1)).toEqual([
      {
        role: "assistant",
        content: "Well.",
        reasoning: "Hm.",
        reasoning_details: [detail],
        tool_calls: [chatCall("a"), chatCall("b")],
      },
      { role: "tool", tool_call_id: "a", content: "seen" },
      { role: "tool", tool_call_id: "b", content: "dark" },
    ]);
  });

  test("media in outputs follow behind all outputs, before what the user says", () => {
    const image = { type: "input_image", image_url: "data:image/png;base64,AA==" };
    const messages = messagesOf([
      called("a"),
      called("b"),
      output("a", [image]),
      output("b"),
      { role: "user", content: "And?" },
    ]);
    expect(messages.map(({ role }) => role)).toEqual(["assistant", "tool", "tool", "user"]);
    expect(messages[3]!.content).toEqual([
      { type: "text", text: "What the tool call returned besides text: a" },
      { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
      { type: "text", text: "And?" },
    ]);
  });

  test("what another gateway encrypted is left out, and reasoning that led to nothing", () => {
    const messages = messagesOf([
      { type: "reasoning", summary: [], encrypted_content: "gAAAA" },
      { role: "user", content: "Go." },
    ]);
    expect(messages).toEqual([{ role: "user", content: "Go." }]);
  });

  test("calls of custom tools are those of a function of one text", () => {
    const { tools, messages } = chatOf({
      tools: [
        { type: "custom", name: "patch", description: "Patches.", format: { type: "text" } },
        {
          type: "custom",
          name: "sql",
          format: { type: "grammar", syntax: "lark", definition: 'start: "x"' },
        },
      ],
      input: [
        { type: "custom_tool_call", call_id: "c", name: "patch", input: 'a "b"' },
        { type: "custom_tool_call_output", call_id: "c", output: "done" },
      ],
    });
    expect(tools).toMatchObject([
      { function: { name: "patch", description: "Patches.", parameters: { required: ["input"] } } },
      { function: { description: 'The input follows this lark grammar:\nstart: "x"' } },
    ]);
    expect(messages[0]!.tool_calls).toEqual([
      {
        id: "c",
        type: "function",
        function: { name: "patch", arguments: '{"input":"a \\"b\\""}' },
      },
    ]);
  });

  test("earlier items come first, and references stand for items once", () => {
    const earlier = [{ role: "user", content: "first" }, said("second")];
    const referable = [said("second"), said("third", "msg_3")];
    const reference = (id: string) => ({ type: "item_reference", id });
    const input = [reference("msg_1"), reference("msg_3"), { role: "user", content: "fourth" }];
    expect(translated({ input }, earlier, referable).request.messages).toEqual([
      { role: "user", content: "first" },
      { role: "assistant", content: "second\n\nthird" },
      { role: "user", content: "fourth" },
    ]);
    expect(() => translated({ input: [reference("msg_9")] })).toThrow('no item "msg_9"');
  });
});

describe("fields of a request", () => {
  test("become those of the chat call", () => {
    const { request, untranslated } = translated({
      max_output_tokens: 50,
      temperature: 0.5,
      top_p: 0.9,
      top_logprobs: 2,
      parallel_tool_calls: false,
      tools: [{ type: "function", name: "look", parameters: { type: "object" }, strict: true }],
      tool_choice: { type: "function", name: "look" },
      text: {
        verbosity: "low",
        format: { type: "json_schema", name: "n", schema: { type: "object" }, strict: true },
      },
      reasoning: { effort: "low", summary: "auto" },
      service_tier: "flex",
      prompt_cache_key: "k",
      safety_identifier: "s",
      user: "u",
      metadata: { a: "b" },
      include: ["reasoning.encrypted_content"],
      store: false,
      truncation: "disabled",
      stream: true,
    });
    expect(untranslated).toEqual([]);
    expect(plain(request)).toEqual({
      model: "test/model",
      messages: [{ role: "user", content: "hello" }],
      stream: true,
      max_tokens: 50,
      temperature: 0.5,
      top_p: 0.9,
      logprobs: true,
      top_logprobs: 2,
      parallel_tool_calls: false,
      tools: [
        {
          type: "function",
          function: { name: "look", parameters: { type: "object" }, strict: true },
        },
      ],
      tool_choice: { type: "function", function: { name: "look" } },
      verbosity: "low",
      response_format: {
        type: "json_schema",
        json_schema: { name: "n", schema: { type: "object" }, strict: true },
      },
      reasoning: { effort: "low", summary: "auto" },
      service_tier: "flex",
      prompt_cache_key: "k",
      safety_identifier: "s",
      user: "u",
      metadata: { a: "b" },
    });
  });

  test("without a counterpart are named", () => {
    const { request, untranslated } = translated({
      client_metadata: { a: "b" },
      context_management: [{ type: "compaction" }],
      truncation: "auto",
      stream_options: { include_obfuscation: true },
      tools: [
        { type: "web_search", external_web_access: true },
        { type: "namespace", name: "files", tools: [{ type: "hologram" }] },
      ],
      input: [
        { role: "user", content: "a" },
        { type: "web_search_call", id: "ws_1", status: "completed" },
      ],
    });
    expect(request).not.toContainAnyKeys(["tools", "client_metadata", "truncation"]);
    expect([...untranslated].sort()).toEqual([
      "client_metadata",
      "context_management",
      "input.web_search_call",
      "stream_options.include_obfuscation",
      "tools.namespace",
      "tools.web_search",
      "truncation",
    ]);
  });
});

test("runs of the gateway's own tools go back to the model with what they returned", () => {
  const found = { file_id: "file_1", filename: "a.txt", text: "at six", score: 1 };
  const runs = [
    { type: "file_search_call", id: "fs_1", queries: ["when"], results: [found] },
    {
      type: "code_interpreter_call",
      id: "ci_1",
      code: "1",
      outputs: [{ type: "logs", logs: "1" }],
    },
    { type: "web_search_call", id: "ws_1", action: { type: "search", query: "when" } },
    { type: "function_call", call_id: "c1", name: "look", arguments: "{}" },
  ];
  const said = { role: "assistant", content: [{ type: "output_text", text: "At six." }] };
  const body = {
    tools: [
      { type: "file_search", vector_store_ids: ["vs_1"] },
      { type: "web_search" },
      { type: "code_interpreter", container: { type: "auto" } },
    ],
    input: [
      { role: "user", content: "when?" },
      ...runs,
      { type: "function_call_output", call_id: "c1", output: "dark" },
      ...runs.slice(0, 1),
      said,
    ],
  };
  const { request, untranslated } = translated(body);
  const messages = request.messages as unknown as Fields[];
  expect(messages.map(({ role }) => role)).toEqual([
    "user",
    "assistant",
    "tool",
    "tool",
    "tool",
    "assistant",
    "tool",
    "assistant",
  ]);
  expect(messages[1]!.tool_calls).toMatchObject([
    { id: "fs_1", function: { name: "file_search", arguments: '{"query":"when"}' } },
    { id: "ci_1", function: { name: "code_interpreter", arguments: '{"code":"1"}' } },
    { id: "c1", function: { name: "look" } },
  ]);
  expect(messages[2]).toMatchObject({ tool_call_id: "fs_1", content: JSON.stringify([found]) });
  expect(messages.at(-1)).toEqual({ role: "assistant", content: "At six." });
  expect([...untranslated]).toEqual([]);
  // A model that is not offered them would not know what they are.
  const without = translated({ ...body, tools: [] });
  expect([...without.untranslated].sort()).toEqual([
    "input.code_interpreter_call",
    "input.file_search_call",
    "input.web_search_call",
  ]);
});

describe("what is refused, with its place", () => {
  const look = { type: "function", name: "look" };
  const cases: readonly (readonly [Fields, string, string])[] = [
    [{ background: true, store: false }, "invalid_body", "background"],
    [{ prompt: { id: "p" } }, "unsupported_parameter", "prompt"],
    [{ service_tier: "priority" }, "unsupported_parameter", "service_tier"],
    [{ tools: [{ type: "function" }] }, "invalid_body", "tools.0.name"],
    [{ tool_choice: "required" }, "invalid_body", "tool_choice"],
    [
      { tools: [look], tool_choice: { type: "function", name: "x" } },
      "invalid_body",
      "tool_choice.name",
    ],
    [{ tools: [{ type: "riddle" }] }, "unsupported_parameter", "tools.0.type"],
    [{ max_tool_calls: 1_001 }, "invalid_body", "max_tool_calls"],
    [
      { input: [{ type: "computer_call_output", call_id: "c", output: { file_id: "f" } }] },
      "unsupported_parameter",
      "input.0.output.file_id",
    ],
    [{ tool_choice: { type: "web_search" } }, "invalid_body", "tool_choice.type"],
    [{ tool_choice: { type: "image_generation" } }, "unsupported_parameter", "tool_choice.type"],
    [{ include: ["everything"] }, "invalid_body", "include.0"],
    [{ text: { format: { type: "json_schema" } } }, "invalid_body", "text.format.schema"],
    [{ input: [{ type: "riddle" }] }, "invalid_body", "input.0.type"],
    [{ input: [{ role: "user" }] }, "invalid_body", "input.0.content"],
    [{ input: [{ role: "tool", content: "a" }] }, "invalid_body", "input.0.role"],
    [
      { input: [{ role: "user", content: [{ type: "input_text" }] }] },
      "invalid_body",
      "input.0.content.0.text",
    ],
    [
      { input: [{ role: "user", content: [{ type: "input_file" }] }] },
      "invalid_body",
      "input.0.content.0",
    ],
    [
      { input: [{ role: "user", content: [{ type: "input_image", file_id: "f" }] }] },
      "unsupported_parameter",
      "input.0.content.0.file_id",
    ],
    [{ input: [output("a")] }, "invalid_body", "input.0.call_id"],
    [{ input: [] }, "invalid_body", "input"],
    [{ instructions: "x".repeat(1_100_000) }, "invalid_body", "instructions"],
  ];
  test.each(cases.map((one) => [JSON.stringify(one[0]).slice(0, 100), ...one] as const))(
    "%s",
    (_name, fields, code, param) => {
      let thrown: unknown;
      try {
        assertResponses(bodyOf(fields));
        factsOf(turnOf(fields));
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toBeInstanceOf(GatewayError);
      expect(thrown).toMatchObject({ code, param });
    },
  );
});
