import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import {
  listErrorRecordings,
  listRecordings,
  loadErrorRecording,
  loadJsonFixture,
  loadRecording,
} from "./recordings.ts";

const FIXTURES = join(import.meta.dir, "..", "fixtures");
/** Their adapters' own tests replay them. */
const OTHER_WIRES = [
  "vercel-ai/anthropic/",
  "vercel-ai/bedrock/",
  "vercel-ai/cohere/",
  "vercel-ai/google/",
  "vercel-ai/openai-responses/",
];
const PROVIDERS = [
  "alibaba",
  "azure",
  "deepseek",
  "groq",
  "mistral",
  "moonshotai",
  "openai",
  "openai-compatible",
  "openrouter",
  "perplexity",
  "xai",
];
const WITHOUT_USAGE = ["vercel-ai/openai-compatible/anthropic-fallback-tool-call.sse"];

describe("recorded chat completions", () => {
  test("are all the streams there are: none is passed over because nobody named its folder", () => {
    const all = [...new Glob("**/*.{chunks.txt,sse}").scanSync(FIXTURES)];
    const streams = all.filter((name) => !OTHER_WIRES.some((folder) => name.startsWith(folder)));
    expect(streams.length).toBeGreaterThan(5);
    expect(listRecordings()).toEqual(expect.arrayContaining(streams));
  });

  test.each(listRecordings())("%s says something, ends, and reports its tokens", (name) => {
    const { expected, stream, sse, json, provider } = loadRecording(name);
    expect(
      expected.content + expected.reasoning + expected.toolCalls.map((call) => call.name).join(""),
    ).not.toBe("");
    expect(expected.finishReason).toBeOneOf(["stop", "tool_calls"]);
    expect(expected.toolCalls.length > 0).toBe(expected.finishReason === "tool_calls");
    for (const call of expected.toolCalls) {
      expect(call.id).not.toBe("");
      expect(JSON.parse(call.arguments)).toBeObject();
    }
    if (WITHOUT_USAGE.includes(name)) expect(expected.usage).toBeNull();
    else
      expect(
        Math.min(expected.usage!.promptTokens, expected.usage!.completionTokens),
      ).toBePositive();
    expect(sse.length > 0).toBe(stream);
    expect(json === undefined).toBe(stream);
    expect(PROVIDERS).toContain(provider);
  });

  test("streams of each provider are there", () => {
    const streams = listRecordings()
      .map(loadRecording)
      .filter((one) => one.stream);
    expect(new Set(streams.map((one) => one.provider))).toEqual(new Set(PROVIDERS));
    expect(streams).toHaveLength(18);
  });

  test("each stream is whole frames and ends with [DONE]", () => {
    for (const recording of listRecordings()
      .map(loadRecording)
      .filter((one) => one.stream)) {
      const text = new TextDecoder().decode(recording.sse);
      expect(text).toEndWith("\n\ndata: [DONE]\n\n");
      expect(
        text.split("\n").filter((line) => !/^($|: |data: (\{.*\}|\[DONE\])$)/.test(line)),
      ).toEqual([]);
    }
  });

  test("the expectation has the exact text, calls and tokens that a reader sees in the files", () => {
    expect(loadRecording("pydantic-ai/openai/test_dbos_agent_run_stream.yaml").expected).toEqual({
      content: "The capital of Mexico is Mexico City.",
      reasoning: "",
      toolCalls: [],
      finishReason: "stop",
      usage: { promptTokens: 14, completionTokens: 8, cachedTokens: 0, reasoningTokens: 0 },
    });
    expect(loadRecording("vercel-ai/mistral/mistral-reasoning.chunks.txt").expected).toEqual({
      content: "2 + 2 = 4",
      reasoning: "The user is asking for 2+2. This is basic arithmetic. 2+2=4.",
      toolCalls: [],
      finishReason: "stop",
      usage: { promptTokens: 10, completionTokens: 46, cachedTokens: 0, reasoningTokens: 0 },
    });
    const deepseek = loadRecording("vercel-ai/deepseek/deepseek-tool-call.chunks.txt").expected;
    expect(deepseek.reasoning).toStartWith("The user");
    expect(deepseek.toolCalls[0]?.arguments).toBe('{"location": "San Francisco"}');
    expect(deepseek.usage).toEqual({
      promptTokens: 339,
      completionTokens: 83,
      cachedTokens: 320,
      reasoningTokens: 39,
    });
    expect(
      loadRecording("vercel-ai/openai-compatible/anthropic-fallback-tool-call.sse").expected,
    ).toEqual({
      content: "Reading it.",
      reasoning: "",
      toolCalls: [
        { index: 1, id: "toolu_sanitized", name: "read_file", arguments: '{"path": "a.txt"}' },
      ],
      finishReason: "tool_calls",
      usage: null,
    });
  });

  test("a name that is not in the fixtures is refused, paths out of them included", () => {
    expect(() => loadRecording("nothing")).toThrow("no recorded chat completion");
    expect(() => loadRecording("../../package.json")).toThrow("no recorded chat completion");
    expect(() => loadJsonFixture("../../package.json")).toThrow("no fixture");
    expect(() => loadErrorRecording("README.md")).toThrow("no recorded error");
  });
});

test("each recorded error has an error status and OpenAI's error form", () => {
  const errors = listErrorRecordings().map(loadErrorRecording);
  expect(errors).toHaveLength(5);
  for (const { status, json } of errors) {
    expect(status).toBeOneOf([400, 404]);
    expect(json).toMatchObject({
      error: { type: "invalid_request_error", message: expect.stringMatching(/.{20}/) },
    });
  }
});
