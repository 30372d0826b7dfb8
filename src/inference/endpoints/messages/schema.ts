import { Type } from "typebox";
import { optional } from "../../../http/route.ts";
import { fallbackModels, providerPreferences } from "../../call/routing/preferences.ts";

const MAX_SAFE = Number.MAX_SAFE_INTEGER;
const MAX_STOP_SEQUENCES = 16;

const open = { additionalProperties: true };
const block = Type.Object({ type: Type.String() }, open);

const message = Type.Object(
  {
    role: Type.Enum(["user", "assistant", "system"]),
    content: Type.Union([Type.String(), Type.Array(block)]),
  },
  { title: "InputMessage" },
);

const systemBlock = Type.Object({ type: Type.Literal("text"), text: Type.String() });

const tool = Type.Object(
  {
    type: optional(Type.String()),
    name: Type.Optional(Type.String({ minLength: 1 })),
    description: optional(Type.String()),
    input_schema: Type.Optional(Type.Object({})),
  },
  { ...open, title: "MessageTool" },
);

const toolChoice = Type.Object({
  type: Type.Enum(["auto", "any", "tool", "none"]),
  name: Type.Optional(Type.String({ description: "The name of the tool, with type tool." })),
  disable_parallel_tool_use: optional(Type.Boolean()),
});

const thinking = Type.Object({
  type: Type.Enum(["enabled", "adaptive", "disabled"]),
  budget_tokens: optional(Type.Integer({ minimum: 1, maximum: MAX_SAFE })),
});

/** Fields of both endpoints. */
const promptFields = {
  model: optional(
    Type.String({ description: "Required if `models` is not given, and ignored otherwise." }),
  ),
  messages: Type.Array(message, { minItems: 1 }),
  system: optional(Type.Union([Type.String(), Type.Array(systemBlock)])),
  tools: optional(Type.Array(tool)),
  tool_choice: optional(toolChoice),
  thinking: optional(thinking),
  output_config: optional(
    Type.Object({
      effort: optional(Type.String()),
      format: optional(Type.Object({ type: Type.String() })),
    }),
  ),
  context_management: optional(Type.Object({})),
  cache_control: optional(
    Type.Object({ type: Type.Literal("ephemeral"), ttl: optional(Type.Enum(["5m", "1h"])) }),
  ),
  models: optional(fallbackModels),
  provider: optional(providerPreferences),
  preset: optional(Type.String()),
  guardrail: optional(Type.String()),
};

/** The body of POST /v1/messages, as Anthropic publishes it. Other members are passed to Anthropic's models. */
export const messagesBody = Type.Object({
  ...promptFields,
  max_tokens: Type.Integer({ minimum: 1, maximum: MAX_SAFE }),
  stream: optional(Type.Boolean()),
  stop_sequences: optional(Type.Array(Type.String(), { maxItems: MAX_STOP_SEQUENCES })),
  temperature: optional(Type.Number({ minimum: 0, maximum: 2 })),
  top_p: optional(Type.Number({ minimum: 0, maximum: 1 })),
  top_k: optional(Type.Integer({ minimum: 0, maximum: MAX_SAFE })),
  metadata: optional(
    Type.Object(
      { user_id: optional(Type.String({ maxLength: 512 })) },
      { description: "Stored with the charge. `idempotency_key` works like the header." },
    ),
  ),
  thread: Type.Optional(
    Type.Unknown({
      description:
        "Not supported. Any value except null is a 400 with `error.details.error_code` `thread_unsupported_request`: send the full conversation.",
    }),
  ),
  session_id: optional(Type.String({ maxLength: 256 })),
  trace: optional(Type.Object({})),
  route_explain: optional(
    Type.Boolean({
      description: "Adds the response header X-Gateway-Route-Explain, which describes the route.",
    }),
  ),
});

/** The body of POST /v1/messages/count_tokens. */
export const countBody = Type.Object(promptFields);

/** The query `?beta=true`, which Anthropic's clients add to the address. */
export const messagesQuery = Type.Object({ beta: Type.Optional(Type.Boolean()) });

const usage = Type.Object(
  {
    input_tokens: Type.Integer({
      description: "Input tokens neither read from a cache nor written to one.",
    }),
    output_tokens: Type.Integer(),
    cache_creation_input_tokens: Type.Optional(Type.Integer()),
    cache_read_input_tokens: Type.Optional(Type.Integer()),
    cost: Type.Number({ description: "USD." }),
  },
  { title: "MessageUsage" },
);

/** A message of Anthropic's API. */
export const messageAnswer = Type.Object(
  {
    id: Type.String(),
    type: Type.Literal("message"),
    role: Type.Literal("assistant"),
    model: Type.String(),
    content: Type.Array(block),
    stop_reason: Type.Union([Type.String(), Type.Null()]),
    stop_sequence: Type.Union([Type.String(), Type.Null()]),
    usage,
  },
  { title: "Message" },
);

/** An event of a stream. */
export const messageEvent = Type.Object(
  { type: Type.String() },
  {
    ...open,
    title: "MessageEvent",
    description: "Each frame is `event: ` with the type, and `data: ` with the event.",
  },
);

export const tokenCount = Type.Object(
  { input_tokens: Type.Integer() },
  { title: "MessageTokenCount" },
);
