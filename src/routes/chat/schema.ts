import { Type } from "typebox";

const nullable = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([schema, Type.Null()]);

const optional = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Optional(nullable(schema));

const MAX_SAFE = Number.MAX_SAFE_INTEGER;
const MAX_FALLBACK_MODELS = 16;
const MAX_CHOICES = 128;
const MAX_STOP_SEQUENCES = 16;

const contentPart = Type.Object({ type: Type.String() });

const toolCall = Type.Object({
  id: Type.Optional(Type.String()),
  type: Type.Optional(Type.String()),
  function: Type.Optional(Type.Object({ name: Type.String(), arguments: Type.String() })),
});

const message = Type.Object({
  role: Type.Enum(["system", "developer", "user", "assistant", "tool", "function"]),
  content: Type.Optional(
    Type.Union([Type.String(), Type.Array(contentPart, { minItems: 1 }), Type.Null()]),
  ),
  name: optional(Type.String()),
  tool_calls: optional(Type.Array(toolCall)),
  tool_call_id: optional(Type.String()),
});

const tool = Type.Object({
  type: Type.String(),
  function: Type.Optional(
    Type.Object({
      name: Type.String({ minLength: 1 }),
      description: optional(Type.String()),
      parameters: optional(Type.Object({})),
      strict: optional(Type.Boolean()),
    }),
  ),
});

const toolChoice = Type.Union([
  Type.Enum(["none", "auto", "required"]),
  Type.Object({ type: Type.Literal("function"), function: Type.Object({ name: Type.String() }) }),
]);

const responseFormat = Type.Union([
  Type.Object({ type: Type.Enum(["text", "json_object"]) }),
  Type.Object({ type: Type.Literal("json_schema"), json_schema: Type.Object({}) }),
]);

const number = (minimum: number, maximum: number) => optional(Type.Number({ minimum, maximum }));
const integer = (minimum: number, maximum: number) => optional(Type.Integer({ minimum, maximum }));

/** The body of POST /v1/chat/completions (spec 4.5). Members beyond these go to the provider. */
export const chatCompletionBody = Type.Object(
  {
    model: Type.Optional(Type.String({ minLength: 1 })),
    messages: Type.Array(message, { minItems: 1 }),
    stream: optional(Type.Boolean()),
    temperature: number(0, 2),
    max_tokens: integer(1, MAX_SAFE),
    max_completion_tokens: integer(1, MAX_SAFE),
    top_p: number(0, 1),
    top_k: integer(0, MAX_SAFE),
    frequency_penalty: number(-2, 2),
    presence_penalty: number(-2, 2),
    repetition_penalty: number(0, 2),
    min_p: number(0, 1),
    seed: integer(-MAX_SAFE, MAX_SAFE),
    stop: optional(
      Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: MAX_STOP_SEQUENCES })]),
    ),
    logit_bias: optional(Type.Record(Type.String(), Type.Number({ minimum: -100, maximum: 100 }))),
    n: integer(1, MAX_CHOICES),
    tools: optional(Type.Array(tool)),
    tool_choice: optional(toolChoice),
    parallel_tool_calls: optional(Type.Boolean()),
    response_format: optional(responseFormat),
    reasoning: optional(
      Type.Object({
        effort: optional(Type.String()),
        max_tokens: integer(1, MAX_SAFE),
        exclude: Type.Optional(Type.Boolean()),
        enabled: Type.Optional(Type.Boolean()),
      }),
    ),
    include_reasoning: optional(Type.Boolean()),
    interleaved_thinking: optional(Type.Boolean()),
    modalities: optional(Type.Array(Type.Enum(["text", "image", "audio"]), { minItems: 1 })),
    image_config: optional(Type.Object({})),
    stream_options: optional(Type.Object({ include_usage: Type.Optional(Type.Boolean()) })),
    models: optional(
      Type.Array(Type.String({ minLength: 1 }), { minItems: 1, maxItems: MAX_FALLBACK_MODELS }),
    ),
    provider: optional(
      Type.Object({
        order: optional(Type.Array(Type.String({ minLength: 1 }))),
        allow_fallbacks: optional(Type.Boolean()),
      }),
    ),
    plugins: optional(Type.Array(Type.Object({ id: Type.String() }))),
    web_search_options: optional(Type.Object({})),
    cache_control: optional(Type.Object({})),
    preset: optional(Type.String()),
    guardrail: optional(Type.String()),
    trace: optional(Type.Object({})),
    session_id: optional(Type.String({ maxLength: 256 })),
    route_explain: optional(Type.Boolean()),
    transforms: optional(Type.Array(Type.String())),
    route: optional(Type.Literal("fallback")),
    metadata: optional(Type.Object({})),
    user: optional(Type.String({ maxLength: 512 })),
    store: optional(Type.Boolean()),
    debug: optional(Type.Object({})),
  },
  {
    examples: [
      {
        model: "sandbox/chat",
        messages: [{ role: "user", content: "Hello" }],
        max_tokens: 100,
        stream: false,
      },
    ],
  },
);

/** A chat completion (spec 2.4). Providers may send more. */
export const chatCompletion = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("chat.completion"),
    created: Type.Integer(),
    model: Type.String(),
    choices: Type.Array(
      Type.Object({
        index: Type.Integer(),
        message: Type.Object({
          role: Type.Literal("assistant"),
          content: nullable(Type.String()),
          reasoning: Type.Optional(Type.String()),
          tool_calls: Type.Optional(Type.Array(toolCall)),
        }),
        finish_reason: Type.Enum(["stop", "length", "tool_calls", "content_filter"]),
      }),
    ),
    usage: Type.Object({
      prompt_tokens: Type.Integer(),
      completion_tokens: Type.Integer(),
      total_tokens: Type.Integer(),
      cost: Type.Number({ description: "USD" }),
    }),
  },
  {
    examples: [
      {
        id: "chatcmpl-01a1fa3e313d71be83c131876b002a5c",
        object: "chat.completion",
        created: 1795199742,
        model: "sandbox/chat",
        choices: [
          {
            index: 0,
            message: { role: "assistant", content: "You said: Hello" },
            finish_reason: "stop",
          },
        ],
        usage: { prompt_tokens: 5, completion_tokens: 4, total_tokens: 9, cost: 0.000002184 },
      },
    ],
  },
);
