import { Type } from "typebox";

export const DEFAULT_FOUND = 20;
const MAX_FOUND = 100;
export const MAX_COMPARED = 20;

const filter = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, description: `${description}, exactly` }));
const active = Type.Optional(
  Type.Boolean({ default: true, description: "false: those that are not available" }),
);

export const listModelsQuery = Type.Object(
  {
    provider: filter("Provider"),
    category: filter("Category"),
    capability: filter("A capability that the model has"),
    active,
  },
  { additionalProperties: false },
);

export const searchModelsQuery = Type.Object(
  {
    q: Type.Optional(
      Type.String({
        description:
          "Words, or beginnings of words, that are all to be found; without any, all models",
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
      description: `1 to ${MAX_COMPARED} model ids, separated by commas`,
    }),
  },
  { additionalProperties: false },
);

const shared = {
  id: Type.String(),
  provider: Type.String(),
  context_length: Type.Integer(),
  input_cost_per_token: Type.Number({ description: "USD" }),
  output_cost_per_token: Type.Number({ description: "USD" }),
  capabilities: Type.Array(Type.String()),
};

const pricing = Type.Record(Type.String(), Type.String(), {
  description: "USD for one of each kind, in plain decimals",
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
      description: "What all tokens cost where the prompt has more than so many, if that differs",
    },
  ),
);

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
  created: Type.Integer({ description: "Unix seconds" }),
};

const model = Type.Object(modelFields);

export const modelDetail = Type.Object({
  ...modelFields,
  canonical_id: Type.Optional(
    Type.String({ description: "The model that this is one provider's endpoint of" }),
  ),
  endpoints: Type.Array(
    Type.Object({
      provider: Type.String(),
      model: Type.String({ description: "The provider's name for it" }),
      context_length: Type.Integer(),
      max_output_tokens: Type.Integer(),
      pricing,
      long_prompt_pricing: longPromptPricing,
      capabilities: Type.Array(Type.String()),
    }),
    { description: "The providers that serve it, in the order in which they are tried" },
  ),
  max_output_tokens: Type.Integer(),
  supports_streaming: Type.Boolean(),
  supports_function_calling: Type.Boolean(),
  supports_vision: Type.Boolean(),
  supports_json_mode: Type.Boolean(),
});

export const modelList = Type.Object({ object: Type.Literal("list"), data: Type.Array(model) });

export const foundModels = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(model),
  total: Type.Integer({ description: "How many were found, however many are shown" }),
});

export const deletedModel = Type.Object({
  id: Type.String(),
  object: Type.Literal("model"),
  deleted: Type.Literal(true),
});

export const comparison = Type.Object({ models: Type.Array(Type.Object(shared)) });
