import { describe, expect, test } from "bun:test";
import { bedrockFields } from "../../src/providers/bedrock/chat-fields.ts";

type Fields = Record<string, unknown>;

const NOVA = "us.amazon.nova-pro-v1:0";
const NOVA_2 = "global.amazon.nova-2-lite-v1:0";
const LLAMA = "us.meta.llama3-3-70b-instruct-v1:0";
const QWEN = "qwen.qwen3-32b-v1:0";
const ANY = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3d4e5f6";
const TOOL = { type: "function", function: { name: "look" } };

describe("fields that a model lacks", () => {
  const { unsupported: missing } = bedrockFields("bedrock");
  const lacks = (field: string, value: unknown, model: string, request: Fields = {}) =>
    missing(field, value, { model, modelId: "x/y" }, true, { [field]: value, ...request });

  test.each([
    ["tools", [TOOL], "us.deepseek.r1-v1:0"],
    ["tools", [TOOL], "us.meta.llama3-2-1b-instruct-v1:0"],
    ["tool_choice", "required", LLAMA],
    ["tool_choice", { type: "function", function: { name: "look" } }, "deepseek.v3-v1:0"],
    ["parallel_tool_calls", false, NOVA],
    ["response_format", { type: "json_object" }, LLAMA],
    ["n", 2, NOVA],
    ["logprobs", true, NOVA],
    ["seed", 1, NOVA],
    ["temperature", 1.5, NOVA],
    ["stop", ["\n"], NOVA],
    ["stop", "end", "openai.gpt-oss-20b-1:0"],
    ["temperature", 0.5, "global.openai.gpt-5.6-luna"],
    ["top_k", 5, LLAMA],
    ["reasoning_effort", "low", NOVA],
    ["reasoning_effort", "high", NOVA_2],
    ["reasoning", { effort: "low" }, NOVA],
    ["cache_control", { type: "ephemeral" }, QWEN],
    ["user", "u", NOVA],
    ["service_tier", "standard_only", "global.anthropic.claude-opus-5"],
  ])("%s %j of %s", (field, value, model) => {
    expect(lacks(field, value, model)).toEqual([field]);
  });

  test.each([
    ["tools", [TOOL], LLAMA],
    ["tool_choice", "required", "deepseek.v3-v1:0"],
    ["response_format", { type: "json_object" }, QWEN],
    ["stop", "end", NOVA],
    ["top_k", 5, NOVA],
    ["reasoning_effort", "low", NOVA_2],
    ["reasoning", { enabled: true, exclude: true }, "openai.gpt-oss-20b-1:0"],
    ["cache_control", { type: "ephemeral" }, NOVA],
    ["cache_control", { type: "ephemeral" }, "anthropic.claude-3-haiku-20240307-v1:0"],
    ["tool_choice", "required", ANY],
    ["tools", [TOOL], "us.anthropic.claude-opus-4-8"],
    ["reasoning_effort", "high", "us.anthropic.claude-opus-4-8"],
  ])("but not %s %j of %s", (field, value, model) => {
    expect(lacks(field, value, model)).toEqual([]);
  });

  test("members of reasoning are named one by one", () => {
    const asked = { effort: "high", max_tokens: 5, enabled: true };
    expect(lacks("reasoning", asked, NOVA_2)).toEqual(["reasoning.effort", "reasoning.max_tokens"]);
    expect(lacks("reasoning", { enabled: false }, "openai.gpt-oss-20b-1:0")).toEqual([
      "reasoning.enabled",
    ]);
  });

  test("kinds of parts: Anthropic's models take images and files, others sound and video too", () => {
    const { takesPart } = bedrockFields("bedrock");
    const taken = (model: string) =>
      (["image", "audio", "video", "file", "binary_file", "file_id", "other"] as const).filter(
        (kind) => takesPart(kind, { model, modelId: "x/y" }),
      );
    expect(taken("us.anthropic.claude-opus-5")).toEqual(["image", "file"]);
    expect(taken(NOVA)).toEqual(["image", "audio", "video", "file", "binary_file"]);
  });
});
