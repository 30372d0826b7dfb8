import { Type } from "typebox";
import { providerPreferences } from "../../calls/routing/preferences.ts";
import { optional } from "../../http/route.ts";

const MAX_INPUTS = 2_048;
const MAX_DIMENSIONS = 65_536;
const MAX_TOKEN_ID = 4_294_967_295;
const MAX_FALLBACK_MODELS = 16;

const text = Type.String({ minLength: 1 });
const tokens = Type.Array(Type.Integer({ minimum: 0, maximum: MAX_TOKEN_ID }), { minItems: 1 });

/** The body of POST /v1/embeddings (spec 4.7). Members beyond these go to the provider. */
export const embeddingsBody = Type.Object(
  {
    model: optional(Type.String()),
    input: Type.Union([
      text,
      Type.Array(text, { minItems: 1, maxItems: MAX_INPUTS }),
      tokens,
      Type.Array(tokens, { minItems: 1, maxItems: MAX_INPUTS }),
    ]),
    encoding_format: optional(Type.Enum(["float", "base64"])),
    dimensions: optional(Type.Integer({ minimum: 1, maximum: MAX_DIMENSIONS })),
    user: optional(Type.String({ maxLength: 512 })),
    models: optional(Type.Array(text, { minItems: 1, maxItems: MAX_FALLBACK_MODELS })),
    provider: optional(providerPreferences),
    route_explain: optional(Type.Boolean()),
    session_id: optional(Type.String({ maxLength: 256 })),
    trace: optional(Type.Object({})),
    metadata: optional(Type.Object({})),
  },
  { examples: [{ model: "sandbox/embed", input: ["Hello", "Good morning"] }] },
);

/** Spec 2.6. */
export const embeddingList = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(
    Type.Object({
      object: Type.Literal("embedding"),
      index: Type.Integer(),
      embedding: Type.Union([
        Type.Array(Type.Number()),
        Type.String({ description: "With base64: little-endian float32" }),
      ]),
    }),
  ),
  model: Type.String(),
  usage: Type.Object({
    prompt_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
    cost: Type.Number(),
  }),
});
