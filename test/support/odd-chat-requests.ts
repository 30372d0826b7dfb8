import fc from "fast-check";
import { oddString, oddValue } from "./odd-values.ts";

/** Of a chat gateway. The sandbox answers in process, with tools and formats obeyed: hostile schemas reach it. */
export const CHAT_MODELS = ["sandbox/chat", "test/spare-0"];

export const CHAT_FIELDS = [
  "model",
  "messages",
  "stream",
  "temperature",
  "max_tokens",
  "max_completion_tokens",
  "top_p",
  "top_k",
  "frequency_penalty",
  "presence_penalty",
  "repetition_penalty",
  "min_p",
  "seed",
  "stop",
  "logit_bias",
  "n",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "reasoning",
  "include_reasoning",
  "interleaved_thinking",
  "modalities",
  "image_config",
  "stream_options",
  "models",
  "provider",
  "plugins",
  "web_search_options",
  "cache_control",
  "preset",
  "guardrail",
  "trace",
  "session_id",
  "route_explain",
  "transforms",
  "route",
  "metadata",
  "user",
  "store",
  "debug",
  "functions",
  "extra",
  "__proto__",
];

/** Of what is refused in most of its forms there is little, so that much of what is sent is taken. */
const mostly = <Good, Odd>(good: fc.Arbitrary<Good>, odd: fc.Arbitrary<Odd>) =>
  fc.oneof({ arbitrary: good, weight: 30 }, { arbitrary: odd, weight: 1 });
const oddObject = fc.dictionary(oddString, oddValue, { maxKeys: 3 });

const part = fc.record({
  type: mostly(fc.constant("text"), fc.constantFrom("image_url", "file", "__proto__")),
  text: oddString,
});
const parts = fc.array(part, { minLength: 1, maxLength: 3 });
const roles = fc.constantFrom("system", "user", "assistant", "tool", "developer");

const message = fc.record(
  { role: roles, content: fc.oneof(oddString, parts), name: oddString, tool_call_id: oddString },
  { requiredKeys: ["role", "content", "tool_call_id"] },
);

/** What may be missing of it is missing of a few, whatever their role. */
const messageWithGaps = fc.record(
  { role: roles, content: fc.oneof(oddString, fc.constant(null), parts), tool_call_id: oddString },
  { requiredKeys: ["role"] },
);
const anyMessage = mostly(message, messageWithGaps);

/** Requests that are mostly valid, each optional field with a value of its own kind. */
export const goodChatRequest = fc.record(
  {
    model: fc.constantFrom(...CHAT_MODELS),
    messages: fc.array(anyMessage, { minLength: 1, maxLength: 3 }),
    stream: fc.boolean(),
    temperature: fc.double({ min: 0, max: 2, noNaN: true }),
    max_tokens: fc.integer({ min: 1, max: 500 }),
    n: fc.integer({ min: 1, max: 3 }),
    seed: fc.maxSafeInteger(),
    stop: fc.oneof(oddString, fc.array(oddString, { maxLength: 4 })),
    logit_bias: fc.dictionary(fc.nat().map(String), fc.integer({ min: -100, max: 100 })),
    tools: fc.array(
      fc.record({
        type: fc.constant("function"),
        function: fc.record({
          name: fc.stringMatching(/^[a-z_]{1,12}$/),
          parameters: mostly(oddObject, oddValue),
        }),
      }),
      { maxLength: 2 },
    ),
    tool_choice: fc.constantFrom("none", "auto", "required"),
    response_format: fc.oneof(
      fc.constant({ type: "json_object" }),
      mostly(oddObject, oddValue).map((schema) => ({
        type: "json_schema",
        json_schema: { name: "a", schema },
      })),
    ),
    stream_options: fc.record({ include_usage: fc.boolean() }),
    metadata: fc.dictionary(oddString, oddValue, { maxKeys: 3 }),
    user: oddString,
    route_explain: fc.boolean(),
    extra: oddValue,
  },
  { requiredKeys: ["model", "messages"] },
);
