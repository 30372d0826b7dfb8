import { jsonResponse } from "../http/error-response.ts";
import type { RequestContext, RouteDefinition } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";
import type { ModelCatalogue } from "./model-catalogue.ts";
import * as schema from "./schema.ts";
import { MAX_COMPARED } from "./schema.ts";

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
        200: { description: "The model", schema: schema.modelDetail },
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
        200: { description: "It is gone", schema: schema.deletedModel },
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
    query: schema.listModelsQuery,
    responses: { 200: { description: "All models that match", schema: schema.modelList } },
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
    query: schema.searchModelsQuery,
    responses: { 200: { description: "Models, the best match first", schema: schema.foundModels } },
    async handle(context) {
      const query = context.query as SearchQuery;
      const { models, total } = await catalogue.search(organizationOf(context), {
        text: query.q ?? "",
        provider: query.provider,
        isActive: query.active ?? true,
        limit: query.limit ?? schema.DEFAULT_FOUND,
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
    query: schema.compareModelsQuery,
    responses: {
      200: { description: "Each model once, in the order asked", schema: schema.comparison },
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
