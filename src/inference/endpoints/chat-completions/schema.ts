import { Type } from "typebox";
import { optional } from "../../../http/route.ts";
import { fallbackModels, providerPreferences } from "../../call/routing/preferences.ts";

const MAX_SAFE = Number.MAX_SAFE_INTEGER;
const MAX_CHOICES = 128;
const MAX_STOP_SEQUENCES = 16;
const MAX_PLUGINS = 16;
const MAX_TOP_LOGPROBS = 20;
const MAX_TRANSFORMS = 16;

/** Values of `reasoning.effort`. A model supports some of them; adapters use the closest one. */
export const REASONING_EFFORTS = [
  ...["none", "minimal", "low", "medium", "high", "xhigh", "max"],
] as const;

/** Objects with other members, which depend on their type. */
const open = { additionalProperties: true };
const contentPart = Type.Object({ type: Type.String() }, open);

const toolCall = Type.Object(
  {
    id: Type.Optional(Type.String()),
    type: Type.Optional(Type.String()),
    function: Type.Optional(Type.Object({ name: Type.String(), arguments: Type.String() })),
    custom: Type.Optional(Type.Object({ name: Type.String(), input: Type.String() })),
  },
  { title: "ChatToolCall" },
);

const message = Type.Object(
  {
    role: Type.Enum(["system", "developer", "user", "assistant", "tool", "function"]),
    content: Type.Optional(
      Type.Union([Type.String(), Type.Array(contentPart, { minItems: 1 }), Type.Null()]),
    ),
    name: optional(Type.String()),
    tool_calls: optional(Type.Array(toolCall)),
    tool_call_id: optional(Type.String()),
    reasoning_details: optional(
      Type.Array(Type.Object({ type: Type.String() }, open), {
        description:
          "The details of an earlier answer, unchanged, so that the model continues its reasoning.",
      }),
    ),
  },
  { title: "ChatMessage" },
);

const tool = Type.Object(
  {
    type: Type.String(),
    function: Type.Optional(
      Type.Object({
        name: Type.String({ minLength: 1 }),
        description: optional(Type.String()),
        parameters: optional(Type.Object({})),
        strict: optional(Type.Boolean()),
      }),
    ),
    custom: Type.Optional(
      Type.Object(
        {
          name: Type.String({ minLength: 1 }),
          description: optional(Type.String()),
          format: optional(
            Type.Union([
              Type.Object({ type: Type.Literal("text") }),
              Type.Object({
                type: Type.Literal("grammar"),
                grammar: Type.Object({
                  syntax: Type.Enum(["lark", "regex"]),
                  definition: Type.String(),
                }),
              }),
            ]),
          ),
        },
        {
          description:
            "A tool with plain text input. Models without custom tools receive a function instead.",
        },
      ),
    ),
  },
  { title: "ChatTool" },
);

const toolChoice = Type.Union(
  [
    Type.Enum(["none", "auto", "required"]),
    Type.Object({ type: Type.Literal("function"), function: Type.Object({ name: Type.String() }) }),
    Type.Object({ type: Type.Literal("custom"), custom: Type.Object({ name: Type.String() }) }),
    Type.Object({
      type: Type.Literal("allowed_tools"),
      allowed_tools: Type.Object({
        mode: Type.Enum(["auto", "required"]),
        tools: Type.Array(Type.Object({ type: Type.String() }), { minItems: 1 }),
      }),
    }),
  ],
  { title: "ChatToolChoice" },
);

const responseFormat = Type.Union(
  [
    Type.Object({ type: Type.Enum(["text", "json_object"]) }),
    Type.Object({ type: Type.Literal("json_schema"), json_schema: Type.Object({}) }),
  ],
  { title: "ChatResponseFormat" },
);

const number = (minimum: number, maximum: number) => optional(Type.Number({ minimum, maximum }));
const integer = (minimum: number, maximum: number) => optional(Type.Integer({ minimum, maximum }));

/** The body of POST /v1/chat/completions (spec 4.5). Other members are passed to the provider. */
export const chatCompletionBody = Type.Object({
  model: optional(
    Type.String({ description: "Required if `models` is not given, and ignored otherwise." }),
  ),
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
  top_a: number(0, 1),
  seed: integer(-MAX_SAFE, MAX_SAFE),
  stop: optional(
    Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: MAX_STOP_SEQUENCES })]),
  ),
  logit_bias: optional(Type.Record(Type.String(), Type.Number({ minimum: -100, maximum: 100 }))),
  n: integer(1, MAX_CHOICES),
  logprobs: optional(Type.Boolean()),
  top_logprobs: integer(0, MAX_TOP_LOGPROBS),
  tools: optional(Type.Array(tool)),
  tool_choice: optional(toolChoice),
  parallel_tool_calls: optional(Type.Boolean()),
  response_format: optional(responseFormat),
  reasoning: optional(
    Type.Object({
      effort: optional(Type.Enum([...REASONING_EFFORTS])),
      max_tokens: integer(1, MAX_SAFE),
      exclude: Type.Optional(Type.Boolean()),
      enabled: Type.Optional(Type.Boolean()),
    }),
  ),
  include_reasoning: optional(Type.Boolean()),
  interleaved_thinking: optional(
    Type.Boolean({ description: "Lets the model think between tool calls." }),
  ),
  modalities: optional(Type.Array(Type.Enum(["text", "image", "audio"]), { minItems: 1 })),
  image_config: optional(Type.Object({})),
  audio: optional(Type.Object({})),
  stream_options: optional(Type.Object({ include_usage: Type.Optional(Type.Boolean()) })),
  usage: optional(
    Type.Object(
      { include: optional(Type.Boolean()) },
      { description: "Requests the usage of a stream, as in OpenRouter's API." },
    ),
  ),
  models: optional(fallbackModels),
  provider: optional(providerPreferences),
  plugins: optional(
    Type.Array(Type.Object({ id: Type.String() }, open), {
      maxItems: MAX_PLUGINS,
      description:
        '`{"id": "web"}` searches the web for the last message of the user before the model answers.',
    }),
  ),
  web_search_options: optional(
    Type.Object(
      {},
      {
        description:
          "Passed to models that search the web themselves. For other models it works like the plugin.",
      },
    ),
  ),
  cache_control: optional(
    Type.Object(
      { type: Type.Literal("ephemeral"), ttl: optional(Type.Enum(["5m", "1h"])) },
      { description: "Makes the provider cache the prompt. The gateway sets the breakpoints." },
    ),
  ),
  preset: optional(Type.String()),
  guardrail: optional(Type.String()),
  trace: optional(Type.Object({})),
  session_id: optional(Type.String({ maxLength: 256 })),
  route_explain: optional(
    Type.Boolean({
      description: "Adds the response header X-Gateway-Route-Explain, which describes the route.",
    }),
  ),
  transforms: optional(
    Type.Array(Type.String(), {
      maxItems: MAX_TRANSFORMS,
      description: '"middle-out": a prompt that is too long for the model is cut in its middle.',
    }),
  ),
  route: optional(
    Type.String({
      maxLength: 64,
      description:
        '"fallback", which is the behaviour of `models` in any case. Other values are rejected.',
    }),
  ),
  metadata: optional(
    Type.Object(
      {},
      {
        description:
          "Stored with the charge. At most 16 pairs besides `tags` and `idempotency_key`. A key has at most 64 characters, and a value 512. `idempotency_key` works like the header.",
      },
    ),
  ),
  user: optional(Type.String({ maxLength: 512 })),
  store: optional(Type.Boolean()),
  debug: optional(
    Type.Object(
      {},
      {
        description:
          "Any object, even an empty one, extends the gateway's log line of this request. The line then has user, session, tags, wait, route and guardrail matches. `echo_upstream_body: true` also returns the provider's request body, if the operator allows it.",
      },
    ),
  ),
});

const answeredCall = Type.Union(
  [
    Type.Object({
      id: Type.String(),
      type: Type.Literal("function"),
      function: Type.Object({ name: Type.String(), arguments: Type.String() }),
    }),
    Type.Object({
      id: Type.String(),
      type: Type.Literal("custom"),
      custom: Type.Object({ name: Type.String(), input: Type.String() }),
    }),
  ],
  { title: "ChatCompletionToolCall" },
);

/** The usage of an answer. A stream has it in the last chunk, and only with `include_usage` or `usage.include`. */
const usage = Type.Object(
  {
    prompt_tokens: Type.Integer(),
    completion_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
    prompt_tokens_details: Type.Optional(
      Type.Object({
        cached_tokens: Type.Integer(),
        cache_write_tokens: Type.Optional(Type.Integer()),
        cache_write_1h_tokens: Type.Optional(Type.Integer()),
        audio_tokens: Type.Optional(Type.Integer()),
      }),
    ),
    completion_tokens_details: Type.Optional(
      Type.Object({
        reasoning_tokens: Type.Integer(),
        image_tokens: Type.Optional(Type.Integer()),
        audio_tokens: Type.Optional(Type.Integer()),
      }),
    ),
    cost: Type.Number({ description: "USD." }),
  },
  { title: "ChatCompletionUsage" },
);

/** OpenRouter's forms of reasoning.text, reasoning.summary and reasoning.encrypted. */
const reasoningDetails = Type.Array(
  Type.Object({ type: Type.String(), format: Type.Optional(Type.String()) }, open),
  {
    title: "ReasoningDetails",
    description: "Send these back unchanged in the assistant's message.",
  },
);

const logprobs = optional(Type.Object({}));
const systemFingerprint = optional(Type.String());
const finishReason = Type.Enum(["stop", "length", "tool_calls", "content_filter"]);

/** Images that the model made, as data URLs. */
const images = Type.Array(
  Type.Object({
    type: Type.Literal("image_url"),
    image_url: Type.Object({ url: Type.String() }),
  }),
  { title: "ChatCompletionImages" },
);

/** Sources of the answer. Indices count characters of the content. */
const annotations = Type.Array(
  Type.Object({
    type: Type.Literal("url_citation"),
    url_citation: Type.Object({
      url: Type.String(),
      title: Type.String(),
      content: Type.Optional(Type.String()),
      start_index: Type.Integer(),
      end_index: Type.Integer(),
    }),
  }),
  { title: "UrlCitations" },
);

/** The echo of the provider's request body. A stream has it in the first chunk. */
const debug = Type.Optional(
  Type.Object({
    echo_upstream_body: Type.Unknown({
      description: "The provider's JSON, or its beginning as text.",
    }),
    is_truncated: Type.Optional(Type.Literal(true)),
  }),
);

/** A chat completion (spec 2.4). Providers can add members. */
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
          content: Type.Union([Type.String(), Type.Null()]),
          refusal: optional(Type.String()),
          reasoning: Type.Optional(Type.String()),
          reasoning_details: Type.Optional(reasoningDetails),
          images: Type.Optional(images),
          annotations: Type.Optional(annotations),
          tool_calls: Type.Optional(Type.Array(answeredCall)),
        }),
        logprobs,
        finish_reason: finishReason,
        healed: Type.Optional(
          Type.Boolean({
            description:
              "Set by the plugin response-healing if the text was not valid JSON. True if the plugin repaired it.",
          }),
        ),
      }),
    ),
    usage,
    system_fingerprint: systemFingerprint,
    debug,
  },
  {
    title: "ChatCompletion",
  },
);

/** A chunk of the stream (spec 6.2). Each frame is `data: ` and a chunk, until `data: [DONE]`. */
export const chatCompletionChunk = Type.Object(
  {
    id: Type.String({ description: "Identical in all chunks of a request." }),
    object: Type.Literal("chat.completion.chunk"),
    created: Type.Integer(),
    model: Type.String(),
    choices: Type.Array(
      Type.Object({
        index: Type.Integer(),
        delta: Type.Object({
          role: Type.Optional(Type.Literal("assistant")),
          content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
          refusal: optional(Type.String()),
          reasoning: Type.Optional(Type.String()),
          reasoning_details: Type.Optional(reasoningDetails),
          images: Type.Optional(images),
          annotations: Type.Optional(annotations),
          tool_calls: Type.Optional(
            Type.Array(
              Type.Object({
                index: Type.Integer(),
                id: Type.Optional(Type.String()),
                function: Type.Optional(
                  Type.Object({
                    name: Type.Optional(Type.String()),
                    arguments: Type.Optional(
                      Type.String({ description: "A part of the arguments." }),
                    ),
                  }),
                ),
                custom: Type.Optional(
                  Type.Object({
                    name: Type.Optional(Type.String()),
                    input: Type.Optional(Type.String({ description: "A part of the input." })),
                  }),
                ),
              }),
            ),
          ),
        }),
        logprobs,
        finish_reason: Type.Union([finishReason, Type.Null()]),
      }),
      { description: "Empty in the chunk that contains the usage." },
    ),
    usage: Type.Optional(usage),
    system_fingerprint: systemFingerprint,
    debug,
  },
  {
    title: "ChatCompletionChunk",
    description: "Each frame is `data: ` and a chunk. The last frame is `data: [DONE]`.",
  },
);
