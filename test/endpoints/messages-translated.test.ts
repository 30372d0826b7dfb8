import { describe, expect, test } from "bun:test";
import { chatRequestOf } from "../../src/inference/endpoints/messages/chat-request.ts";
import {
  nativeFields,
  unpricedFields,
} from "../../src/inference/endpoints/messages/native-request.ts";
import type { MessagesBody } from "../../src/inference/endpoints/messages/request.ts";
import { assertMessages } from "../../src/inference/endpoints/messages/request-checks.ts";
import { factsOf } from "../../src/inference/endpoints/messages/request-facts.ts";
import { messageOf } from "../../src/inference/endpoints/messages/whole-message.ts";
import { GatewayError } from "../../src/lib/errors.ts";

type Fields = Record<string, unknown>;

const bodyOf = (fields: Fields): MessagesBody =>
  ({
    model: "test/model",
    max_tokens: 1_000,
    messages: [{ role: "user", content: "hello" }],
    ...fields,
  }) as MessagesBody;
const translated = (fields: Fields, keepsCacheControl = false) =>
  chatRequestOf(bodyOf(fields), keepsCacheControl);
const chatOf = (fields: Fields) => translated(fields).request;
const said = (...content: Fields[]) => ({ messages: [{ role: "user", content }] });
const PNG = { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=" };

describe("a prompt becomes messages of the chat call", () => {
  test("with the system prompt first, and system messages where they stand", () => {
    const { messages } = chatOf({
      system: [
        { type: "text", text: "Be brief." },
        { type: "text", text: "Be kind.", cache_control: { type: "ephemeral" } },
      ],
      messages: [
        { role: "user", content: "hello" },
        { role: "system", content: "The user is in a hurry." },
      ],
    });
    expect(messages).toEqual([
      { role: "system", content: "Be brief.\n\nBe kind." },
      { role: "user", content: "hello" },
      { role: "system", content: "The user is in a hurry." },
    ]);
  });

  test("with images and documents as parts", () => {
    const { messages } = chatOf(
      said(
        { type: "text", text: "See:" },
        { type: "image", source: PNG },
        { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
        { type: "document", title: "plan.pdf", source: { ...PNG, media_type: "application/pdf" } },
        {
          type: "document",
          title: "Notes",
          context: "Of May.",
          source: { type: "text", media_type: "text/plain", data: "Rain." },
        },
        {
          type: "search_result",
          source: "https://example.com",
          title: "Weather",
          content: [{ type: "text", text: "Sunny." }],
        },
      ),
    );
    expect(messages[0]!.content).toEqual([
      { type: "text", text: "See:" },
      { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } },
      { type: "image_url", image_url: { url: "https://example.com/a.png" } },
      {
        type: "file",
        file: { filename: "plan.pdf", file_data: "data:application/pdf;base64,iVBORw0KGgo=" },
      },
      { type: "text", text: "Notes\nOf May.\nRain." },
      { type: "text", text: "Weather (https://example.com)\nSunny." },
    ]);
  });

  test("with parallel calls, their results before what else is said, and images behind them", () => {
    const call = (id: string) => ({ type: "tool_use", id, name: "look", input: { at: id } });
    const { messages } = chatOf({
      messages: [
        { role: "user", content: "Look." },
        { role: "assistant", content: [{ type: "text", text: "Well." }, call("a"), call("b")] },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "a", content: [{ type: "image", source: PNG }] },
            { type: "tool_result", tool_use_id: "b", is_error: true, content: "too dark" },
            { type: "text", text: "And?" },
          ],
        },
      ],
    });
    const called = (id: string) => ({
      id,
      type: "function",
      function: { name: "look", arguments: JSON.stringify({ at: id }) },
    });
    expect(messages.slice(1)).toEqual([
      { role: "assistant", content: "Well.", tool_calls: [called("a"), called("b")] },
      { role: "tool", tool_call_id: "a", content: "" },
      { role: "tool", tool_call_id: "b", content: "The tool call failed: too dark" },
      {
        role: "user",
        content: [
          { type: "text", text: "What the tool call returned besides text: a" },
          { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } },
          { type: "text", text: "And?" },
        ],
      },
    ]);
  });

  test("with breakpoints of the cache only where they are known, and without their lifetime", () => {
    const fields = {
      system: [{ type: "text", text: "Be.", cache_control: { type: "ephemeral", ttl: "1h" } }],
      tools: [{ name: "look", input_schema: {}, cache_control: { type: "ephemeral" } }],
    };
    const control = { cache_control: { type: "ephemeral" } };
    const { messages, tools } = translated(fields, true).request;
    expect(messages[0]!.content).toEqual([{ type: "text", text: "Be.", ...control }]);
    expect(tools![0]).toMatchObject(control);
    expect(JSON.stringify(translated(fields).request)).not.toContain("cache_control");
  });

  test("without what only Anthropic's models know, which is named", () => {
    const { request, untranslated } = translated({
      context_management: { edits: [] },
      container: "c",
      tools: [{ type: "bash_20250124", name: "bash" }],
      tool_choice: { type: "any" },
      ...said(
        { type: "server_tool_use", id: "s", name: "x", input: {} },
        { type: "text", text: "a" },
      ),
    });
    expect(request).not.toContainAnyKeys(["tools", "tool_choice", "context_management"]);
    expect(request.messages).toEqual([{ role: "user", content: "a" }]);
    expect([...untranslated].sort()).toEqual([
      "container",
      "context_management",
      "server_tool_use",
      "tools.0",
    ]);
  });
});

describe("fields of a request", () => {
  test("become those of the chat call", () => {
    const userId = JSON.stringify({ device_id: "d".repeat(64), session_id: "s".repeat(100) });
    const { messages: _, ...fields } = chatOf({
      stop_sequences: ["END"],
      temperature: 0.5,
      top_p: 0.9,
      top_k: 5,
      stream: true,
      metadata: { user_id: userId, idempotency_key: "k" },
      tools: [
        {
          name: "look",
          description: "Looks.",
          input_schema: { $schema: "https://json-schema.org/draft/2020-12/schema", type: "object" },
        },
      ],
      tool_choice: { type: "tool", name: "look", disable_parallel_tool_use: true },
    });
    expect(fields).toEqual({
      model: "test/model",
      max_tokens: 1_000,
      stop: ["END"],
      temperature: 0.5,
      top_p: 0.9,
      top_k: 5,
      stream: true,
      user: userId,
      metadata: { idempotency_key: "k" },
      tools: [
        {
          type: "function",
          function: { name: "look", description: "Looks.", parameters: { type: "object" } },
        },
      ],
      tool_choice: { type: "function", function: { name: "look" } },
      parallel_tool_calls: false,
    });
  });

  test.each<[Fields, unknown]>([
    [{ thinking: { type: "enabled", budget_tokens: 900 } }, { max_tokens: 900, effort: "high" }],
    [{ thinking: { type: "enabled", budget_tokens: 400 } }, { max_tokens: 400, effort: "medium" }],
    [{ thinking: { type: "adaptive" } }, { enabled: true }],
    [{ thinking: { type: "adaptive" }, output_config: { effort: "low" } }, { effort: "low" }],
    [{ output_config: { effort: "max" } }, { effort: "high" }],
    [{ thinking: { type: "disabled" }, output_config: { effort: "low" } }, { enabled: false }],
    [{}, undefined],
  ])("%j asks for the reasoning %j", (fields, reasoning) => {
    expect(chatOf(fields).reasoning as unknown).toEqual(reasoning);
  });

  test("ask for a format of the answer, held to strictly where OpenAI's rules allow it", () => {
    const closed = {
      type: "object",
      properties: { a: { type: "string" } },
      required: ["a"],
      additionalProperties: false,
    };
    const open = { type: "object", properties: { a: { type: "string" } } };
    const formatOf = (schema: Fields) =>
      chatOf({ output_config: { format: { type: "json_schema", schema } } }).response_format;
    const format = (json_schema: Fields) => ({ type: "json_schema", json_schema });
    expect(formatOf(closed)).toEqual(format({ name: "answer", schema: closed, strict: true }));
    expect(formatOf(open)).toEqual(format({ name: "answer", schema: open }));
  });
});

describe("reasoning of an answer comes back as it was", () => {
  test.each<[string, Fields]>([
    [
      "anthropic",
      {
        type: "reasoning.text",
        text: "a",
        signature: "s",
        format: "anthropic-claude-v1",
        index: 0,
      },
    ],
    [
      "anthropic's, redacted",
      { type: "reasoning.encrypted", data: "x", format: "anthropic-claude-v1", index: 0 },
    ],
    ["google", { type: "reasoning.text", text: "a", signature: "s", format: "google-gemini-v1" }],
    [
      "of a call",
      { type: "reasoning.encrypted", data: "x", id: "call_1", format: "google-gemini-v1" },
    ],
    [
      "a summary",
      { type: "reasoning.summary", summary: "a", format: "openai-responses-v1", index: 0 },
    ],
  ])("%s", (_name, detail) => {
    const { content } = messageOf({ reasoningDetails: [detail as never], finish: "stop" });
    const [answer] = chatOf({ messages: [{ role: "assistant", content }] }).messages;
    expect(answer!.reasoning_details).toEqual([detail]);
  });

  test("plain text without details is reasoning, and no detail", () => {
    const { content } = messageOf({ reasoning: "hm", text: "a", finish: "stop" });
    const [answer] = chatOf({ messages: [{ role: "assistant", content }] }).messages;
    expect(answer).toEqual({ role: "assistant", content: "a", reasoning: "hm" });
  });

  test("and never reaches Anthropic where another wire made it", () => {
    const foreign = messageOf({
      reasoning: "hm",
      reasoningDetails: [{ type: "reasoning.encrypted", data: "x", format: "google-gemini-v1" }],
      finish: "stop",
    }).content as Fields[];
    const own = { type: "thinking", thinking: "t", signature: "c2lnbmVk" };
    const text = { type: "text", text: "a" };
    const messages = [
      { role: "user", content: "hello" },
      { role: "assistant", content: [...foreign, own, text] },
      { role: "assistant", content: foreign },
    ];
    expect(nativeFields(bodyOf({ messages }), 10).messages).toEqual([
      messages[0],
      { role: "assistant", content: [own, text] },
    ]);
  });
});

describe("what Anthropic's own models get", () => {
  test("is what came, without the gateway's fields", () => {
    const body = bodyOf({
      system: "Be.",
      thinking: { type: "adaptive" },
      context_management: { edits: [{ type: "clear_thinking_20251015" }] },
      anything: { new: true },
      metadata: { user_id: "u", idempotency_key: "k" },
      provider: { order: ["anthropic"] },
      session_id: "s",
      stream: true,
    });
    const { model: _m, provider: _p, session_id: _s, stream: _t, metadata: _d, ...rest } = body;
    expect(nativeFields(body, 1_000)).toEqual({ ...rest, metadata: { user_id: "u" } });
    expect(unpricedFields(body)).toEqual([]);
  });

  test("is without what the provider would run at a price that is not known", () => {
    const edits = [{ type: "clear_tool_uses_20250919" }, { type: "compact_20260112" }];
    const tools = [
      { name: "look", input_schema: {}, defer_loading: true },
      { type: "web_search_20250305", name: "web_search" },
      { type: "bash_20250124", name: "bash" },
    ];
    const body = bodyOf({
      context_management: { edits },
      tools,
      tool_choice: { type: "tool", name: "web_search" },
      mcp_servers: [{ url: "https://example.com" }],
      fallbacks: [{ model: "claude-opus-5" }],
      speed: "fast",
    });
    const passed = JSON.parse(JSON.stringify(nativeFields(body, 1_000)));
    expect(passed).toEqual({
      max_tokens: 1_000,
      messages: body.messages,
      context_management: { edits: [edits[0]] },
      tools: [{ name: "look", input_schema: {} }, tools[2]],
    });
    expect(unpricedFields(body)).toEqual([
      "mcp_servers",
      "fallbacks",
      "speed",
      "context_management.edits.1",
      "tools.1",
    ]);
  });

  test("thinks within a lowered limit", () => {
    const body = bodyOf({
      max_tokens: 32_000,
      thinking: { type: "enabled", budget_tokens: 31_999 },
    });
    expect(nativeFields(body, 32_000).thinking).toEqual(body.thinking);
    expect(nativeFields(body, 4_096)).toMatchObject({
      max_tokens: 4_096,
      thinking: { type: "enabled", budget_tokens: 4_095 },
    });
    expect(nativeFields(body, 300).thinking).toEqual({ type: "disabled" });
  });

  test("is bounded by all of its text, and its longest cache is found wherever it stands", () => {
    const hour = { type: "ephemeral", ttl: "1h" };
    const result = {
      type: "tool_result",
      tool_use_id: "a",
      content: [{ type: "text", text: "x", cache_control: hour }],
    };
    const facts = factsOf(bodyOf({ ...said(result), unknown: "y".repeat(5_000) }));
    expect(facts.nativeSize.longCacheLifetime).toBe(
      "messages.0.content.0.content.0.cache_control.ttl",
    );
    expect(facts.nativeSize.bytes).toBeGreaterThan(5_000);
  });
});

describe("a malformed request is refused where it is wrong", () => {
  const used = { type: "tool_use", id: "a", name: "look", input: {} };
  test.each<[string, Fields]>([
    ["messages.0.content.0.tool_use_id", said({ type: "tool_result", tool_use_id: "a" })],
    ["messages.0.content.0.text", said({ type: "text" })],
    ["messages.0.content.0.source.type", said({ type: "image", source: { type: "odd" } })],
    ["messages.0.content.0.source.data", said({ type: "image", source: { ...PNG, data: 1 } })],
    [
      "messages.0.content.0.source.type",
      said({ type: "document", source: { type: "file", file_id: "f" } }),
    ],
    ["messages.0.content.0.type", said({ type: "container_upload", file_id: "f" })],
    ["messages.0.content.0.input", said({ ...used, input: "x" })],
    ["tools.0.input_schema", { tools: [{ name: "look" }] }],
    ["tool_choice.name", { tool_choice: { type: "tool" } }],
    ["inference_geo", { inference_geo: "us" }],
  ])("%s", (param, fields) => {
    let thrown: unknown;
    try {
      assertMessages(bodyOf(fields));
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(GatewayError);
    expect((thrown as GatewayError).param).toBe(param);
  });

  test("and a result behind its call is not", () => {
    const messages = [
      { role: "assistant", content: [used] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "a" }] },
    ];
    expect(() => assertMessages(bodyOf({ messages }))).not.toThrow();
  });
});

describe("what is held for a prompt that passes as it came", () => {
  const URL_SOURCE = { type: "url", url: "https://example.com/a.pdf" };
  const held = (role: string, ...content: Fields[]) =>
    factsOf(
      bodyOf({
        messages: [
          { role: "user", content: "hi" },
          { role, content },
        ],
      }),
    ).nativeSize;

  test.each([
    ["user", { type: "document", source: URL_SOURCE }],
    ["assistant", { type: "document", source: URL_SOURCE }],
    ["assistant", { type: "image", source: PNG }],
    ["system", { type: "document", source: URL_SOURCE }],
    [
      "assistant",
      {
        type: "web_fetch_tool_result",
        tool_use_id: "srvtoolu_1",
        content: { type: "web_fetch_result", content: { type: "document", source: URL_SOURCE } },
      },
    ],
    ["user", { type: "video", source: URL_SOURCE }],
    ["user", { type: "image_url", image_url: { url: "https://example.com/a.png" } }],
    ["user", { type: "container_upload", file_id: "file_1" }],
    [
      "user",
      {
        type: "search_result",
        source: "s",
        title: "t",
        content: [{ type: "image", source: PNG }],
      },
    ],
  ])("counts media whose tokens its bytes do not tell: %s %j", (role, block) => {
    expect(held(role, block).media).toBeGreaterThan(0);
  });

  test.each([
    ["assistant", { type: "text", text: "hello" }],
    ["assistant", { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: {} }],
    ["assistant", { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [] }],
    ["assistant", { type: "thinking", thinking: "hm", signature: "s" }],
    ["user", { type: "document", source: { type: "text", media_type: "text/plain", data: "x" } }],
  ])("counts text as text: %s %j", (role, block) => {
    expect(held(role, block).media).toBe(0);
  });

  test("finds a cache of an hour in what a server tool returned", () => {
    const cache_control = { type: "ephemeral", ttl: "1h" };
    const document = { type: "document", source: PNG, cache_control };
    const content = { type: "web_fetch_result", content: document };
    const size = held("assistant", { type: "web_fetch_tool_result", tool_use_id: "s", content });
    expect(size.longCacheLifetime).toBeDefined();
  });
});
