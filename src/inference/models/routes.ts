import { Type } from "typebox";
import { anthropicWire } from "../../http/anthropic-wire.ts";
import { jsonResponse, jsonTextResponse } from "../../http/error-response.ts";
import {
  organizationOf,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import { yieldToEventLoop } from "../../lib/yield-to-event-loop.ts";
import {
  type AnthropicPage,
  anthropicList,
  anthropicModel,
  isAnthropicClient,
} from "./anthropic-list.ts";
import type { ModelCatalogue } from "./model-catalogue.ts";
import {
  anthropicModelList,
  anthropicModelSchema,
  compareModelsQuery,
  comparison,
  countModelsQuery,
  DEFAULT_FOUND,
  deletedModel,
  foundModels,
  listModelsQuery,
  MAX_COMPARED,
  modelCount,
  modelDetail,
  modelList,
  searchModelsQuery,
} from "./schemas.ts";

interface FilterQuery {
  readonly provider?: string;
  readonly category?: string;
  readonly capability?: string;
  readonly active?: boolean;
}

interface ListQuery extends FilterQuery, AnthropicPage {
  readonly offset?: number;
}

const common = {
  tag: "Models",
  access: { kind: "catalogue", scope: "models:read" },
  wire: (request: Request) => (isAnthropicClient(request) ? anthropicWire : undefined),
} as const;

/**
 * Returns the routes of the model catalogue (spec 4.4). Paths have wildcards because a model id contains
 * slashes.
 */
export function modelRoutes(catalogue: ModelCatalogue): RouteDefinition[] {
  return [
    listRoute(catalogue),
    countRoute(catalogue),
    searchRoute(catalogue),
    compareRoute(catalogue),
    route({
      ...common,
      method: "GET",
      path: "/v1/models/*",
      operationId: "models.retrieve",
      summary: "Retrieve a model",
      description: "The id can also be a slug that only one model has.",
      responses: {
        200: {
          description: "The model; in Anthropic's format with an anthropic-version header.",
          schema: Type.Union([modelDetail, anthropicModelSchema]),
        },
        404: { description: "There is no such model." },
      },
      async handle(context) {
        const model = await catalogue.find(
          organizationOf(context),
          nameInPath(context.params["*"]),
        );
        return jsonResponse(
          isAnthropicClient(context.request) ? anthropicModel(model) : catalogue.detail(model),
        );
      },
    }),
    route({
      ...common,
      method: "DELETE",
      path: "/v1/models/*",
      operationId: "models.delete",
      summary: "Delete a fine-tuned model",
      access: { kind: "administration", scope: "models:write" },
      responses: {
        200: { description: "The model was deleted.", schema: deletedModel },
        403: { description: "The model is not a fine-tuned model of the organization." },
        404: { description: "There is no such model." },
      },
      async handle(context) {
        const id = await catalogue.remove(
          context.caller.key,
          nameInPath(context.params["*"]),
          context.author,
        );
        return jsonResponse({ id, object: "model", deleted: true });
      },
    }),
  ];
}

function listRoute(catalogue: ModelCatalogue): RouteDefinition {
  return route({
    ...common,
    method: "GET",
    path: "/v1/models",
    operationId: "models.list",
    summary: "List models",
    query: listModelsQuery,
    responses: {
      200: {
        description: "The matching models; in Anthropic's format with an anthropic-version header.",
        schema: Type.Union([modelList, anthropicModelList]),
      },
    },
    async handle(context) {
      const query = context.query;
      const models = await filtered(catalogue, context, query);
      const isAnthropic = isAnthropicClient(context.request);
      assertPaging(query, isAnthropic);
      if (isAnthropic) return jsonResponse(anthropicList(models, query));
      const { offset = 0, limit = models.length } = query;
      const page = models.slice(offset, offset + limit);
      const next = offset + page.length < models.length ? nextPath(context, offset + limit) : null;
      return listResponse(catalogue, page, { links: { next }, total_count: models.length });
    },
  });
}

function countRoute(catalogue: ModelCatalogue): RouteDefinition {
  return route({
    ...common,
    method: "GET",
    path: "/v1/models/count",
    operationId: "models.count",
    summary: "Count models",
    query: countModelsQuery,
    responses: { 200: { description: "The number of matching models.", schema: modelCount } },
    async handle(context) {
      const models = await filtered(catalogue, context, context.query);
      return jsonResponse({ data: { count: models.length } });
    },
  });
}

function filtered(
  catalogue: ModelCatalogue,
  context: RequestContext,
  { provider, category, capability, active = true }: FilterQuery,
): Promise<CatalogueModel[]> {
  const filter = { provider, category, capability, isActive: active };
  return catalogue.list(organizationOf(context), filter);
}

/** Throws 400 if the request pages in the way of the other list format. */
function assertPaging(query: ListQuery, isAnthropic: boolean): void {
  const unsupported = (isAnthropic ? ["offset"] : ["after_id", "before_id"]) as (keyof ListQuery)[];
  const param = unsupported.find((name) => query[name] !== undefined);
  if (param === undefined) return;
  const problem = isAnthropic
    ? "page by after_id or before_id"
    : "it needs an anthropic-version header";
  throw new GatewayError("invalid_query", `Query parameter "${param}": ${problem}.`, { param });
}

function nextPath({ request }: RequestContext, offset: number): string {
  const { pathname, searchParams } = new URL(request.url);
  searchParams.set("offset", String(offset));
  return `${pathname}?${searchParams}`;
}

/**
 * Models that are described before the event loop runs again. A model that no list contained before takes 0.1
 * ms.
 */
const MODELS_PER_PIECE = 200;

async function listResponse(
  catalogue: ModelCatalogue,
  models: readonly CatalogueModel[],
  rest: object,
): Promise<Response> {
  const data: string[] = [];
  for (const model of models) {
    data.push(catalogue.listed(model));
    if (data.length % MODELS_PER_PIECE === 0) await yieldToEventLoop();
  }
  return jsonTextResponse(
    `{"object":"list","data":[${data.join(",")}],${JSON.stringify(rest).slice(1)}`,
  );
}

function searchRoute(catalogue: ModelCatalogue): RouteDefinition {
  return route({
    ...common,
    method: "GET",
    path: "/v1/models/search",
    operationId: "models.search",
    summary: "Search models by name, provider and description",
    query: searchModelsQuery,
    responses: { 200: { description: "Models, best match first.", schema: foundModels } },
    async handle(context) {
      const query = context.query;
      const { models, total } = await catalogue.search(organizationOf(context), {
        text: query.q ?? "",
        provider: query.provider,
        isActive: query.active ?? true,
        limit: query.limit ?? DEFAULT_FOUND,
      });
      return listResponse(catalogue, models, { total });
    },
  });
}

function compareRoute(catalogue: ModelCatalogue): RouteDefinition {
  return route({
    ...common,
    method: "GET",
    path: "/v1/models/compare",
    operationId: "models.compare",
    summary: "Compare models",
    query: compareModelsQuery,
    responses: {
      200: { description: "Each model once, in the order of the request.", schema: comparison },
      404: { description: "There is no such model." },
    },
    async handle(context) {
      const names = comparedNames(context.query.models);
      return jsonResponse({ models: await catalogue.compare(organizationOf(context), names) });
    },
  });
}

/**
 * Returns the name of a model or alias from a parameter of a path. It arrives in the form that the client sent: `a/b`
 * or `a%2Fb`.
 */
export function nameInPath(wildcard: string): string {
  try {
    return decodeURIComponent(wildcard);
  } catch {
    // Invalid encoding is left unchanged and matches no model.
    return wildcard;
  }
}

/** Splits names at commas. Throws 400 invalid_query if a name is empty or if there are too many. */
function comparedNames(list: string): string[] {
  const names = list.split(",", MAX_COMPARED + 1).map((name) => name.trim());
  if (names.length > MAX_COMPARED) {
    throw invalid(`at most ${MAX_COMPARED} models can be compared at a time`);
  }
  if (names.includes("")) throw invalid("it must be model ids separated by commas");
  return names;
}

function invalid(problem: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "models": ${problem}.`, {
    param: "models",
  });
}
