import { Type } from "typebox";
import { optional } from "../../../http/route.ts";
import { fallbackModels, providerPreferences } from "../../call/routing/preferences.ts";
import { REASONING_EFFORTS } from "../chat-completions/schema.ts";

const MAX_SAFE = Number.MAX_SAFE_INTEGER;
const MAX_TOP_LOGPROBS = 20;
const MAX_ID_CHARACTERS = 256;

export const inputItem = Type.Object(
  { type: optional(Type.String()), id: optional(Type.String({ maxLength: MAX_ID_CHARACTERS })) },
  {
    title: "ResponseInputItem",
    additionalProperties: true,
    description:
      "A message, function_call, function_call_output, custom_tool_call, custom_tool_call_output, reasoning, or item_reference.",
  },
);

const tool = Type.Object(
  {
    type: Type.String(),
    name: Type.Optional(Type.String({ minLength: 1 })),
    description: optional(Type.String()),
    parameters: optional(Type.Object({})),
    strict: optional(Type.Boolean()),
    format: optional(Type.Object({ type: Type.String() })),
  },
  { title: "ResponseTool", additionalProperties: true },
);

const toolChoice = Type.Union(
  [
    Type.Enum(["none", "auto", "required"]),
    Type.Object(
      {
        type: Type.String(),
        name: Type.Optional(Type.String()),
        mode: Type.Optional(Type.Enum(["none", "auto", "required"])),
        tools: Type.Optional(
          Type.Array(Type.Object({ type: Type.String(), name: Type.Optional(Type.String()) })),
        ),
      },
      { title: "ResponseNamedTools" },
    ),
  ],
  { title: "ResponseToolChoice" },
);

const textFormat = Type.Object(
  {
    type: Type.Enum(["text", "json_object", "json_schema"]),
    name: Type.Optional(Type.String()),
    description: optional(Type.String()),
    schema: Type.Optional(Type.Object({})),
    strict: optional(Type.Boolean()),
  },
  { title: "ResponseTextFormat" },
);

const number = (minimum: number, maximum: number) => optional(Type.Number({ minimum, maximum }));

/** The body of POST /v1/responses (spec 4.6), as OpenAI and Open Responses publish it. */
export const responsesBody = Type.Object({
  model: optional(
    Type.String({ description: "Required if `models` is not given, and ignored otherwise." }),
  ),
  input: optional(Type.Union([Type.String(), Type.Array(inputItem)])),
  instructions: optional(Type.String()),
  conversation: optional(
    Type.Union([
      Type.String({ minLength: 1, maxLength: MAX_ID_CHARACTERS }),
      Type.Object({ id: Type.String({ minLength: 1, maxLength: MAX_ID_CHARACTERS }) }),
    ]),
  ),
  previous_response_id: optional(Type.String({ minLength: 1, maxLength: MAX_ID_CHARACTERS })),
  stream: optional(Type.Boolean()),
  stream_options: optional(Type.Object({ include_obfuscation: optional(Type.Boolean()) })),
  store: optional(Type.Boolean()),
  background: optional(Type.Boolean()),
  temperature: number(0, 2),
  top_p: number(0, 1),
  presence_penalty: number(-2, 2),
  frequency_penalty: number(-2, 2),
  top_logprobs: optional(Type.Integer({ minimum: 0, maximum: MAX_TOP_LOGPROBS })),
  max_output_tokens: optional(Type.Integer({ minimum: 1, maximum: MAX_SAFE })),
  max_tool_calls: optional(
    Type.Integer({
      minimum: 1,
      maximum: MAX_SAFE,
      description: "Limit for tools that the gateway runs.",
    }),
  ),
  parallel_tool_calls: optional(Type.Boolean()),
  tools: optional(Type.Array(tool)),
  tool_choice: optional(toolChoice),
  text: optional(
    Type.Object({
      format: optional(textFormat),
      verbosity: optional(Type.Enum(["low", "medium", "high"])),
    }),
  ),
  reasoning: optional(
    Type.Object({
      effort: optional(Type.Enum([...REASONING_EFFORTS])),
      summary: optional(Type.Enum(["auto", "concise", "detailed"])),
    }),
  ),
  include: optional(Type.Array(Type.String())),
  truncation: optional(Type.Enum(["auto", "disabled"])),
  service_tier: optional(Type.String()),
  prompt_cache_key: optional(Type.String({ maxLength: 512 })),
  prompt_cache_retention: optional(Type.String()),
  safety_identifier: optional(Type.String({ maxLength: 512 })),
  user: optional(Type.String({ maxLength: 512 })),
  metadata: optional(
    Type.Object(
      {},
      {
        description:
          "Stored with the charge. At most 16 pairs besides `tags` and `idempotency_key`. A key has at most 64 characters, and a value 512. `idempotency_key` works like the header.",
      },
    ),
  ),
  models: optional(fallbackModels),
  provider: optional(providerPreferences),
  preset: optional(Type.String()),
  guardrail: optional(Type.String()),
  session_id: optional(Type.String({ maxLength: 256 })),
  trace: optional(Type.Object({})),
  route_explain: optional(
    Type.Boolean({
      description: "Adds the response header X-Gateway-Route-Explain, which describes the route.",
    }),
  ),
});

const outputItem = Type.Object(
  { type: Type.String(), id: Type.String() },
  { title: "ResponseOutputItem", additionalProperties: true },
);

const usage = Type.Object(
  {
    input_tokens: Type.Integer(),
    input_tokens_details: Type.Object({ cached_tokens: Type.Integer() }),
    output_tokens: Type.Integer(),
    output_tokens_details: Type.Object({ reasoning_tokens: Type.Integer() }),
    total_tokens: Type.Integer(),
    cost: Type.Number({ description: "USD." }),
  },
  { title: "ResponseUsage" },
);

const nullableString = Type.Union([Type.String(), Type.Null()]);
const nullableInteger = Type.Union([Type.Integer(), Type.Null()]);
const open = { additionalProperties: true };

/** The members of the request that a response repeats. */
const repeatedMembers = {
  previous_response_id: nullableString,
  conversation: Type.Optional(Type.Object({ id: Type.String() })),
  instructions: nullableString,
  tools: Type.Array(Type.Object({ type: Type.String() }, open)),
  tool_choice: Type.Union([Type.String(), Type.Object({ type: Type.String() }, open)]),
  truncation: Type.String(),
  parallel_tool_calls: Type.Boolean(),
  text: Type.Object({
    format: Type.Object({ type: Type.String() }, open),
    verbosity: Type.Optional(Type.String()),
  }),
  top_p: Type.Number(),
  presence_penalty: Type.Number(),
  frequency_penalty: Type.Number(),
  top_logprobs: Type.Integer(),
  temperature: Type.Number(),
  reasoning: Type.Object({ effort: nullableString, summary: nullableString }),
  max_output_tokens: nullableInteger,
  max_tool_calls: nullableInteger,
  store: Type.Boolean(),
  background: Type.Boolean(),
  service_tier: Type.String(),
  metadata: Type.Object({}),
  safety_identifier: nullableString,
  prompt_cache_key: nullableString,
  user: nullableString,
};

/** A response (spec 2.5). */
export const responseAnswer = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("response"),
    created_at: Type.Integer(),
    completed_at: Type.Union([Type.Integer(), Type.Null()]),
    status: Type.Enum(["completed", "incomplete", "in_progress", "failed", "cancelled", "queued"]),
    model: Type.String(),
    output: Type.Array(outputItem),
    usage: Type.Union([usage, Type.Null()]),
    incomplete_details: Type.Union([Type.Object({ reason: Type.String() }), Type.Null()]),
    error: Type.Union([Type.Object({ code: Type.String(), message: Type.String() }), Type.Null()]),
    ...repeatedMembers,
  },
  { title: "ResponseObject" },
);

/** A compaction. */
export const compactedResponse = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("response.compaction"),
    created_at: Type.Integer(),
    output: Type.Array(outputItem),
    usage,
  },
  { title: "CompactedResponse" },
);

export const inputTokens = Type.Object(
  {
    object: Type.Literal("response.input_tokens"),
    input_tokens: Type.Integer({ description: "An estimate." }),
  },
  { title: "ResponseInputTokens" },
);

/** An event of a stream. */
export const responseEvent = Type.Object(
  { type: Type.String(), sequence_number: Type.Integer() },
  {
    title: "ResponseEvent",
    additionalProperties: true,
    description:
      "Each frame is `event: ` with the type, and `data: ` with the event. The last frame is `data: [DONE]`.",
  },
);
