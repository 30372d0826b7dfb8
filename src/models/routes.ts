import { Type } from "typebox";
import { jsonResponse } from "../http/error-response.ts";
import type { RequestContext, RouteDefinition } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";
import type { ModelCatalogue } from "./model-catalogue.ts";

const DEFAULT_FOUND = 20;
const MAX_FOUND = 100;
const MAX_COMPARED = 20;

const filter = (description: string) =>
  Type.Optional(Type.String({ minLength: 1, description: `${description}, exactly` }));
const active = Type.Optional(
  Type.Boolean({ default: true, description: "false: those that are not available" }),
);

const listModelsQuery = Type.Object(
  {
    provider: filter("Provider"),
    category: filter("Category"),
    capability: filter("A capability that the model has"),
    active,
  },
  { additionalProperties: false },
);

const searchModelsQuery = Type.Object(
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

const compareModelsQuery = Type.Object(
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

const modelDetail = Type.Object({
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

const modelList = Type.Object({ object: Type.Literal("list"), data: Type.Array(model) });

const foundModels = Type.Object({
  object: Type.Literal("list"),
  data: Type.Array(model),
  total: Type.Integer({ description: "How many were found, however many are shown" }),
});

const deletedModel = Type.Object({
  id: Type.String(),
  object: Type.Literal("model"),
  deleted: Type.Literal(true),
});

const comparison = Type.Object({ models: Type.Array(Type.Object(shared)) });

interface ListQuery {
  readonly provider?: string;
  readonly category?: string;
  readonly capability?: string;
  readonly active?: boolean;
}

interface SearchQuery {
  readonly q?: string;
  readonly provider?: string;
  readonly limit?: number;
  readonly active?: boolean;
}

const common = {
  tag: "Models",
  access: { kind: "catalogue", scope: "models:read" },
} as const;

/** The catalogue of models (spec 4.4). A model's id has slashes, hence the wildcards. */
export function modelRoutes(catalogue: ModelCatalogue): RouteDefinition[] {
  return [
    listRoute(catalogue),
    searchRoute(catalogue),
    compareRoute(catalogue),
    {
      ...common,
      method: "GET",
      path: "/v1/models/*",
      summary: "Retrieve a model by its id, or by a slug that only one model has",
      responses: {
        200: { description: "The model", schema: modelDetail },
        404: { description: "There is no such model" },
      },
      async handle(context) {
        return jsonResponse(await catalogue.detail(organizationOf(context), askedName(context)));
      },
    },
    {
      ...common,
      method: "DELETE",
      path: "/v1/models/*",
      summary: "Delete a fine-tuned model",
      access: { kind: "administration", scope: "models:write" },
      responses: {
        200: { description: "It is gone", schema: deletedModel },
        403: { description: "The model is not a fine-tuned one of the organization" },
        404: { description: "There is no such model" },
      },
      async handle(context) {
        const id = await catalogue.remove(context.caller.key, askedName(context));
        return jsonResponse({ id, object: "model", deleted: true });
      },
    },
  ];
}

function listRoute(catalogue: ModelCatalogue): RouteDefinition {
  return {
    ...common,
    method: "GET",
    path: "/v1/models",
    summary: "List models",
    query: listModelsQuery,
    responses: { 200: { description: "All models that match", schema: modelList } },
    async handle(context) {
      const { active = true, ...filter } = context.query as ListQuery;
      const wish = { ...filter, isActive: active };
      const data = await catalogue.list(organizationOf(context), wish);
      return jsonResponse({ object: "list", data });
    },
  };
}

function searchRoute(catalogue: ModelCatalogue): RouteDefinition {
  return {
    ...common,
    method: "GET",
    path: "/v1/models/search",
    summary: "Search models by name, provider and description",
    query: searchModelsQuery,
    responses: { 200: { description: "Models, the best match first", schema: foundModels } },
    async handle(context) {
      const query = context.query as SearchQuery;
      const { models, total } = await catalogue.search(organizationOf(context), {
        text: query.q ?? "",
        provider: query.provider,
        isActive: query.active ?? true,
        limit: query.limit ?? DEFAULT_FOUND,
      });
      return jsonResponse({ object: "list", data: models, total });
    },
  };
}

function compareRoute(catalogue: ModelCatalogue): RouteDefinition {
  return {
    ...common,
    method: "GET",
    path: "/v1/models/compare",
    summary: "Compare models",
    query: compareModelsQuery,
    responses: {
      200: { description: "Each model once, in the order asked", schema: comparison },
      404: { description: "There is no such model" },
    },
    async handle(context) {
      const names = comparedNames((context.query as { models: string }).models);
      return jsonResponse({ models: await catalogue.compare(organizationOf(context), names) });
    },
  };
}

function organizationOf(context: RequestContext): string {
  return context.caller.key.organizationId;
}

function askedName(context: RequestContext): string {
  return nameInPath(context.params["*"] ?? "");
}

/** The model's name in what a path's wildcard caught, which arrives as it was sent: `a/b` or `a%2Fb`. */
function nameInPath(wildcard: string): string {
  try {
    return decodeURIComponent(wildcard);
  } catch {
    // What is encoded wrongly is left as it is and names no model.
    return wildcard;
  }
}

/** Names separated by commas. Throws 400 invalid_query where one is empty or there are too many. */
function comparedNames(list: string): string[] {
  const names = list.split(",", MAX_COMPARED + 1).map((name) => name.trim());
  if (names.length > MAX_COMPARED) {
    throw invalid(`at most ${MAX_COMPARED} models can be compared at a time`);
  }
  if (names.includes("")) throw invalid("it must be model ids separated by commas");
  return names;
}

function invalid(what: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "models": ${what}.`, {
    param: "models",
  });
}
