import { Type } from "typebox";
import { providerPreferences } from "../../call/routing/preferences.ts";
import { optional } from "../../../http/route.ts";

const MAX_SAFE = Number.MAX_SAFE_INTEGER;
const MAX_FALLBACK_MODELS = 16;
const MAX_CHOICES = 128;
const MAX_STOP_SEQUENCES = 16;
const MAX_PLUGINS = 16;
const MAX_TOP_LOGPROBS = 20;
const MAX_TRANSFORMS = 16;

/** Values of `reasoning.effort`. Models have some of them; adapters take the closest one. */
export const REASONING_EFFORTS = [
  ...["none", "minimal", "low", "medium", "high", "xhigh", "max"],
] as const;

const contentPart = Type.Object({ type: Type.String() });

const toolCall = Type.Object({
  id: Type.Optional(Type.String()),
  type: Type.Optional(Type.String()),
  function: Type.Optional(Type.Object({ name: Type.String(), arguments: Type.String() })),
  custom: Type.Optional(Type.Object({ name: Type.String(), input: Type.String() })),
});

const message = Type.Object({
  role: Type.Enum(["system", "developer", "user", "assistant", "tool", "function"]),
  content: Type.Optional(
    Type.Union([Type.String(), Type.Array(contentPart, { minItems: 1 }), Type.Null()]),
  ),
  name: optional(Type.String()),
  tool_calls: optional(Type.Array(toolCall)),
  tool_call_id: optional(Type.String()),
  reasoning_details: optional(
    Type.Array(Type.Object({ type: Type.String() }), {
      description: "Of an earlier answer, unchanged: the model goes on with its reasoning",
    }),
  ),
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
      { description: "A tool of one text; models without such tools get a function for it" },
    ),
  ),
});

const toolChoice = Type.Union([
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
    model: optional(
      Type.String({ description: "Needed, and looked at, where `models` is not given" }),
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
      Type.Boolean({ description: "Lets the model think between its calls of tools" }),
    ),
    modalities: optional(Type.Array(Type.Enum(["text", "image", "audio"]), { minItems: 1 })),
    image_config: optional(Type.Object({})),
    audio: optional(Type.Object({})),
    stream_options: optional(Type.Object({ include_usage: Type.Optional(Type.Boolean()) })),
    usage: optional(
      Type.Object(
        { include: optional(Type.Boolean()) },
        { description: "OpenRouter's way to ask a stream for its usage" },
      ),
    ),
    models: optional(
      Type.Array(Type.String({ minLength: 1 }), {
        minItems: 1,
        maxItems: MAX_FALLBACK_MODELS,
        description: "Tried in turn where the one before fails; in the place of `model`",
      }),
    ),
    provider: optional(providerPreferences),
    plugins: optional(
      Type.Array(Type.Object({ id: Type.String() }), {
        maxItems: MAX_PLUGINS,
        description:
          '`{"id": "web"}` searches the web for the last message of the user before the model answers',
      }),
    ),
    web_search_options: optional(
      Type.Object(
        {},
        {
          description: "Passed to models that search the web themselves; for others as the plugin",
        },
      ),
    ),
    cache_control: optional(
      Type.Object(
        { type: Type.Literal("ephemeral"), ttl: optional(Type.Enum(["5m", "1h"])) },
        { description: "Has the provider cache the prompt; the gateway puts the breakpoints" },
      ),
    ),
    preset: optional(Type.String()),
    guardrail: optional(Type.String()),
    trace: optional(Type.Object({})),
    session_id: optional(Type.String({ maxLength: 256 })),
    route_explain: optional(
      Type.Boolean({ description: "Tell the route in the header X-Gateway-Route-Explain" }),
    ),
    transforms: optional(
      Type.Array(Type.String(), {
        maxItems: MAX_TRANSFORMS,
        description: '"middle-out": a prompt that the model cannot take is cut in its middle',
      }),
    ),
    route: optional(
      Type.String({
        maxLength: 64,
        description: '"fallback": what the list `models` asks for anyway; others are refused',
      }),
    ),
    metadata: optional(
      Type.Object(
        {},
        {
          description:
            "Kept with the charge: at most 16 pairs, with keys of at most 64 characters and texts of at most 512, besides `tags` and `idempotency_key`, which does what the header does",
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
            "With any members, also none: the gateway's log line of this request has its user, session, tags, wait, route and guardrail matches. `echo_upstream_body: true` also shows the caller what was sent to the provider, if the operator allows it",
        },
      ),
    ),
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

const answeredCall = Type.Union([
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
]);

/** With include_usage in a stream's last chunk, always in what is not streamed. */
const usage = Type.Object({
  prompt_tokens: Type.Integer(),
  completion_tokens: Type.Integer(),
  total_tokens: Type.Integer(),
  cost: Type.Number({ description: "USD" }),
});

/** OpenRouter's forms of reasoning.text, reasoning.summary and reasoning.encrypted. */
const reasoningDetails = Type.Array(
  Type.Object({ type: Type.String(), format: Type.Optional(Type.String()) }),
  { description: "To be sent back unchanged in the assistant's message" },
);

const finishReason = Type.Enum(["stop", "length", "tool_calls", "content_filter"]);

/** Images that the model has made, as data URLs. */
const images = Type.Array(
  Type.Object({
    type: Type.Literal("image_url"),
    image_url: Type.Object({ url: Type.String() }),
  }),
);

/** What the answer draws on. Indices are those of characters of the content. */
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
);

/** In the first chunk of a stream. */
const debug = Type.Optional(
  Type.Object({
    echo_upstream_body: Type.Unknown({
      description: "The provider's JSON, or its beginning as text",
    }),
    is_truncated: Type.Optional(Type.Literal(true)),
  }),
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
          content: Type.Union([Type.String(), Type.Null()]),
          reasoning: Type.Optional(Type.String()),
          reasoning_details: Type.Optional(reasoningDetails),
          images: Type.Optional(images),
          annotations: Type.Optional(annotations),
          tool_calls: Type.Optional(Type.Array(answeredCall)),
        }),
        finish_reason: finishReason,
        healed: Type.Optional(
          Type.Boolean({ description: "With the plugin response-healing, of what was no JSON" }),
        ),
      }),
    ),
    usage,
    debug,
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

/** A frame of the stream (spec 6.2): `data: ` and this, until `data: [DONE]`. */
export const chatCompletionChunk = Type.Object(
  {
    id: Type.String({ description: "The same in all chunks of a request" }),
    object: Type.Literal("chat.completion.chunk"),
    created: Type.Integer(),
    model: Type.String(),
    choices: Type.Array(
      Type.Object({
        index: Type.Integer(),
        delta: Type.Object({
          role: Type.Optional(Type.Literal("assistant")),
          content: Type.Optional(Type.Union([Type.String(), Type.Null()])),
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
                    arguments: Type.Optional(Type.String({ description: "A part of them" })),
                  }),
                ),
                custom: Type.Optional(
                  Type.Object({
                    name: Type.Optional(Type.String()),
                    input: Type.Optional(Type.String({ description: "A part of it" })),
                  }),
                ),
              }),
            ),
          ),
        }),
        finish_reason: Type.Union([finishReason, Type.Null()]),
      }),
      { description: "None in the chunk that brings the usage" },
    ),
    usage: Type.Optional(usage),
    debug,
  },
  {
    description: "A frame is `data: ` and this; the last one is `data: [DONE]`.",
    examples: [
      {
        id: "chatcmpl-01a1fa3e313d71be83c131876b002a5c",
        object: "chat.completion.chunk",
        created: 1795199742,
        model: "sandbox/chat",
        choices: [{ index: 0, delta: { content: "You" }, finish_reason: null }],
      },
    ],
  },
);
