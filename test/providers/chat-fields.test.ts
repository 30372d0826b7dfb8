import { describe, expect, test } from "bun:test";
import { PROVIDER_TYPES } from "../../src/platform/config/provider-types.ts";
import { chatFieldsOf, fieldKind, isDefault } from "../../src/providers/chat-fields.ts";

const MODEL = { model: "m", modelId: "test/m" };

function missing(type: string, field: string, value: unknown, model = "m", isOnlyType = false) {
  return chatFieldsOf(type).unsupported(
    field,
    value,
    { model, modelId: `test/${model}` },
    isOnlyType,
    {},
  );
}

test("a server of the operator's own has every field, known and unknown", () => {
  for (const field of ["tools", "n", "logprobs", "top_k", "top_a", "store", "x_custom"]) {
    expect(missing("openai-compatible", field, 1)).toEqual([]);
  }
});

test.each([
  ["openai", ["top_k", "min_p", "top_a", "repetition_penalty"]],
  ["mistral", ["top_k", "logit_bias", "user", "store", "logprobs", "min_p"]],
  ["groq", ["n", "logprobs", "top_logprobs", "logit_bias", "frequency_penalty", "top_k"]],
  ["deepseek", ["n", "seed", "logit_bias", "parallel_tool_calls"]],
  ["cerebras", ["n", "presence_penalty", "frequency_penalty", "logit_bias"]],
  ["perplexity", ["tools", "tool_choice", "n", "seed"]],
  ["sandbox", ["functions", "top_k", "logit_bias", "presence_penalty", "prediction"]],
])("%s lacks %p", (type, fields) => {
  for (const field of fields) expect(missing(type, field, 2)).toEqual([field]);
});

test("a name of a user that is too long for a provider counts as lacked there", () => {
  for (const [type, most] of [
    ["openai", 64],
    ["openrouter", 128],
  ] as const) {
    expect(missing(type, "user", "u".repeat(most))).toEqual([]);
    expect(missing(type, "user", "u".repeat(most + 1))).toEqual(["user"]);
  }
  expect(missing("openai-compatible", "user", "u".repeat(512))).toEqual([]);
});

test("every type has what all of them have, and the sandbox honours what the spec names", () => {
  for (const type of Object.keys(PROVIDER_TYPES)) {
    for (const field of ["temperature", "top_p", "stop", "response_format"]) {
      expect(missing(type, field, { type: "json_object" })).toEqual([]);
    }
  }
  for (const field of ["tools", "tool_choice", "n", "logprobs", "top_logprobs", "seed"]) {
    expect(missing("sandbox", field, 2)).toEqual([]);
  }
});

test("reasoning models of OpenAI and Azure lack sampling, under whichever name they are known", () => {
  for (const type of ["openai", "azure"]) {
    for (const model of ["o1", "o3-mini", "gpt-5", "gpt-5-mini", "ft:o4-mini:a"]) {
      for (const field of ["temperature", "top_p", "logprobs", "frequency_penalty"]) {
        expect(missing(type, field, 0.5, model)).toEqual([field]);
      }
    }
    for (const model of ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "gpt-5.1", "gpt-oss-20b"]) {
      expect(missing(type, "temperature", 0.5, model)).toEqual([]);
    }
    expect(missing(type, "reasoning_effort", "low", "gpt-4o")).toEqual(["reasoning_effort"]);
    expect(missing(type, "reasoning", { effort: "low" }, "gpt-4o")).toEqual(["reasoning"]);
    expect(missing(type, "reasoning_effort", "low", "gpt-5.1")).toEqual([]);
  }
  const deployment = { model: "my-deployment", modelId: "openai/o3" };
  expect(chatFieldsOf("azure").unsupported("temperature", 0.5, deployment, true, {})).toEqual([
    "temperature",
  ]);
  expect(missing("openrouter", "temperature", 0.5, "openai/o3")).toEqual([]);
});

test("a type that lacks one value of a field lacks the field for that value", () => {
  for (const type of ["deepseek", "zai"]) {
    expect(missing(type, "response_format", { type: "json_schema" })).toEqual(["response_format"]);
    expect(missing(type, "response_format", { type: "json_object" })).toEqual([]);
  }
});

test("of reasoning, a type that takes an effort lacks the details, and one without it the whole", () => {
  const reasoning = { effort: "low", max_tokens: 5, exclude: true, enabled: true };
  expect(missing("openai", "reasoning", reasoning, "gpt-5")).toEqual(["reasoning.max_tokens"]);
  expect(missing("groq", "reasoning", { enabled: true })).toEqual(["reasoning.enabled"]);
  expect(missing("mistral", "reasoning", reasoning)).toEqual(["reasoning"]);
  expect(missing("mistral", "reasoning", { exclude: true })).toEqual([]);
  expect(missing("openrouter", "reasoning", reasoning)).toEqual([]);
});

describe("a field that no table knows", () => {
  test("is meant for the one type that serves the call, and otherwise for the operator's own servers", () => {
    for (const type of ["openai", "mistral", "nvidia"]) {
      expect(missing(type, "x_custom", 1, "m", true)).toEqual([]);
      expect(missing(type, "x_custom", 1, "m", false)).toEqual(["x_custom"]);
    }
    expect(missing("sandbox", "x_custom", 1, "m", true)).toEqual(["x_custom"]);
    expect(missing("openai", "toString", 1, "m", false)).toEqual(["toString"]);
    expect(fieldKind("constructor")).toBe("hint");
  });

  test("of one provider's own is meant for that provider, whoever else could serve the call", () => {
    for (const isOnlyType of [true, false]) {
      expect(missing("mistral", "safe_prompt", true, "m", isOnlyType)).toEqual([]);
      expect(missing("openai", "safe_prompt", true, "m", isOnlyType)).toEqual(["safe_prompt"]);
    }
  });
});

test("values that ask for what happens anyway", () => {
  for (const [field, value] of [
    ["n", 1],
    ["logprobs", false],
    ["tools", []],
    ["presence_penalty", 0],
    ["response_format", { type: "text" }],
    ["modalities", ["text"]],
    ["store", false],
  ] as const) {
    expect(isDefault(field, value)).toBeTrue();
  }
  expect(isDefault("n", 2)).toBeFalse();
  expect(isDefault("x_custom", false)).toBeFalse();
  expect(chatFieldsOf("groq").unsupported("n", 1, MODEL, true, {})).toEqual(["n"]);
});
