import { Type } from "typebox";
import { nullable } from "../../http/route.ts";
import { ANTHROPIC_PAGE } from "./anthropic-list.ts";

export const DEFAULT_FOUND = 20;
const MAX_FOUND = 100;
export const MAX_COMPARED = 20;
const MAX_LISTED = 1_000;

const filter = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, description: `${description}; exact match.` }));
const active = Type.Optional(
  Type.Boolean({
    default: true,
    description: "If false, lists the models that are not available.",
  }),
);

const filters = {
  provider: filter("Provider"),
  category: filter("Category"),
  capability: filter("A capability that the model has"),
  active,
};
const cursor = (position: "after" | "before") =>
  Type.Optional(
    Type.String({
      minLength: 1,
      description: `With an anthropic-version header: models ${position} this one.`,
    }),
  );

export const listModelsQuery = Type.Object(
  {
    ...filters,
    limit: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: MAX_LISTED,
        description: `Maximum number of models. Default: all, or ${ANTHROPIC_PAGE} with an anthropic-version header.`,
      }),
    ),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    after_id: cursor("after"),
    before_id: cursor("before"),
  },
  { additionalProperties: false },
);

export const countModelsQuery = Type.Object(filters, { additionalProperties: false });

export const searchModelsQuery = Type.Object(
  {
    q: Type.Optional(
      Type.String({
        description: "Words or beginnings of words, all of which must match; empty: all models.",
      }),
    ),
    provider: filter("Provider"),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_FOUND, default: DEFAULT_FOUND })),
    active,
  },
  { additionalProperties: false },
);

export const compareModelsQuery = Type.Object(
  {
    models: Type.String({
      description: `1 to ${MAX_COMPARED} model ids, separated by commas.`,
    }),
  },
  { additionalProperties: false },
);

const shared = {
  id: Type.String(),
  provider: Type.String(),
  context_length: Type.Integer(),
  input_cost_per_token: Type.Number({ description: "USD." }),
  output_cost_per_token: Type.Number({ description: "USD." }),
  capabilities: Type.Array(Type.String()),
};

const pricing = Type.Record(Type.String(), Type.String(), {
  description: "USD per unit of each kind, as plain decimals.",
});
const longPromptPricing = Type.Optional(
  Type.Object(
    {
      above_tokens: Type.Integer(),
      prompt: Type.String(),
      completion: Type.String(),
      input_cache_read: Type.String(),
      input_cache_write: Type.String(),
    },
    {
      description:
        "Prices of all tokens if the prompt has more than above_tokens tokens; absent if they do not differ.",
    },
  ),
);

/** Fields that clients of OpenRouter read in addition. */
const openRouterFields = {
  canonical_slug: Type.String(),
  hugging_face_id: Type.Null(),
  architecture: Type.Object({
    modality: Type.String({ description: "For example text+image->text." }),
    input_modalities: Type.Array(Type.String()),
    output_modalities: Type.Array(Type.String()),
    tokenizer: Type.String(),
    instruct_type: Type.Null(),
  }),
  top_provider: Type.Object({
    context_length: Type.Integer(),
    max_completion_tokens: nullable(Type.Integer()),
    is_moderated: Type.Boolean(),
  }),
  per_request_limits: Type.Null(),
  supported_parameters: Type.Array(Type.String(), {
    description: "Fields of chat requests that at least one of its endpoints supports.",
  }),
  default_parameters: Type.Null(),
  supported_voices: Type.Null(),
  links: Type.Object({ details: Type.String() }),
};

const modelFields = {
  ...shared,
  object: Type.Literal("model"),
  name: Type.String(),
  description: Type.String(),
  owned_by: Type.String(),
  pricing,
  long_prompt_pricing: longPromptPricing,
  is_active: Type.Boolean(),
  category: Type.String(),
  created: Type.Integer({ description: "Unix seconds." }),
  ...openRouterFields,
};

const model = Type.Object(modelFields, { title: "Model" });

export const modelDetail = Type.Object(
  {
    ...modelFields,
    canonical_id: Type.Optional(
      Type.String({
        description: "Id of the model, if this entry is one provider's endpoint of it.",
      }),
    ),
    endpoints: Type.Array(
      Type.Object({
        provider: Type.String(),
        model: Type.String({ description: "The provider's name of the model." }),
        context_length: Type.Integer(),
        max_output_tokens: Type.Integer(),
        pricing,
        long_prompt_pricing: longPromptPricing,
        capabilities: Type.Array(Type.String()),
      }),
      { description: "The providers that serve the model, in the order in which they are tried." },
    ),
    max_output_tokens: Type.Integer(),
    supports_streaming: Type.Boolean(),
    supports_function_calling: Type.Boolean(),
    supports_vision: Type.Boolean(),
    supports_json_mode: Type.Boolean(),
  },
  { title: "ModelDetails" },
);

export const modelList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(model),
    links: Type.Object({ next: nullable(Type.String({ description: "Path of the next page." })) }),
    total_count: Type.Integer({
      description: "Number of all matching models, including those on other pages.",
    }),
  },
  { title: "ModelList" },
);

export const anthropicModelSchema = Type.Object(
  {
    type: Type.Literal("model"),
    id: Type.String(),
    display_name: Type.String(),
    created_at: Type.String({ description: "RFC 3339; 1970 if unknown." }),
    lifecycle: Type.Union([Type.Literal("active"), Type.Literal("retired")]),
    max_input_tokens: Type.Integer(),
    max_tokens: Type.Integer({ description: "Maximum output tokens." }),
  },
  { title: "AnthropicModel" },
);

export const anthropicModelList = Type.Object(
  {
    data: Type.Array(anthropicModelSchema),
    has_more: Type.Boolean(),
    first_id: nullable(Type.String()),
    last_id: nullable(Type.String()),
  },
  { title: "AnthropicModelList" },
);

export const modelCount = Type.Object(
  { data: Type.Object({ count: Type.Integer() }) },
  { title: "ModelCount" },
);

export const foundModels = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(model),
    total: Type.Integer({
      description: "Number of all matching models, including those beyond the limit.",
    }),
  },
  { title: "FoundModels" },
);

export const deletedModel = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("model"),
    deleted: Type.Literal(true),
  },
  { title: "DeletedModel" },
);

export const comparison = Type.Object(
  { models: Type.Array(Type.Object(shared)) },
  { title: "ModelComparison" },
);
