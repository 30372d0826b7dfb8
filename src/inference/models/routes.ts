import { Type } from "typebox";
import { anthropicWire } from "../../http/anthropic-wire.ts";
import { jsonResponse, jsonTextResponse } from "../../http/error-response.ts";
import type { RequestContext, RouteDefinition } from "../../http/route.ts";
import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import { yieldToEventLoop } from "../../lib/turn-of-loop.ts";
import {
  type AnthropicPage,
  anthropicList,
  anthropicModel,
  asksAsAnthropic,
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

interface SearchQuery {
  readonly q?: string;
  readonly provider?: string;
  readonly limit?: number;
  readonly active?: boolean;
}

const common = {
  tag: "Models",
  access: { kind: "catalogue", scope: "models:read" },
  wire: (request: Request) => (asksAsAnthropic(request) ? anthropicWire : undefined),
} as const;

/** The catalogue of models (spec 4.4). A model's id has slashes, hence the wildcards. */
export function modelRoutes(catalogue: ModelCatalogue): RouteDefinition[] {
  return [
    listRoute(catalogue),
    countRoute(catalogue),
    searchRoute(catalogue),
    compareRoute(catalogue),
    {
      ...common,
      method: "GET",
      path: "/v1/models/*",
      summary: "Retrieve a model by its id, or by a slug that only one model has",
      responses: {
        200: {
          description: "The model; as Anthropic describes it with an anthropic-version header",
          schema: Type.Union([modelDetail, anthropicModelSchema]),
        },
        404: { description: "There is no such model" },
      },
      async handle(context) {
        const model = await catalogue.find(organizationOf(context), askedName(context));
        return jsonResponse(
          asksAsAnthropic(context.request) ? anthropicModel(model) : catalogue.detail(model),
        );
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
        const id = await catalogue.remove(context.caller.key, askedName(context), context.author);
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
    responses: {
      200: {
        description:
          "The models that match; as Anthropic lists them with an anthropic-version header",
        schema: Type.Union([modelList, anthropicModelList]),
      },
    },
    async handle(context) {
      const query = context.query as ListQuery;
      const models = await filtered(catalogue, context, query);
      const isAnthropic = asksAsAnthropic(context.request);
      assertOwnPaging(query, isAnthropic);
      if (isAnthropic) return jsonResponse(anthropicList(models, query));
      const { offset = 0, limit = models.length } = query;
      const page = models.slice(offset, offset + limit);
      const next = offset + page.length < models.length ? nextPath(context, offset + limit) : null;
      return listResponse(catalogue, page, { links: { next }, total_count: models.length });
    },
  };
}

function countRoute(catalogue: ModelCatalogue): RouteDefinition {
  return {
    ...common,
    method: "GET",
    path: "/v1/models/count",
    summary: "Count models",
    query: countModelsQuery,
    responses: { 200: { description: "How many models match", schema: modelCount } },
    async handle(context) {
      const models = await filtered(catalogue, context, context.query as FilterQuery);
      return jsonResponse({ data: { count: models.length } });
    },
  };
}

function filtered(
  catalogue: ModelCatalogue,
  context: RequestContext,
  { provider, category, capability, active = true }: FilterQuery,
): Promise<CatalogueModel[]> {
  const filter = { provider, category, capability, isActive: active };
  return catalogue.list(organizationOf(context), filter);
}

/** Each of the two ways to page belongs to one form of the list. */
function assertOwnPaging(query: ListQuery, isAnthropic: boolean): void {
  const foreign = (isAnthropic ? ["offset"] : ["after_id", "before_id"]) as (keyof ListQuery)[];
  const param = foreign.find((name) => query[name] !== undefined);
  if (param === undefined) return;
  const what = isAnthropic
    ? "page by after_id or before_id"
    : "it needs an anthropic-version header";
  throw new GatewayError("invalid_query", `Query parameter "${param}": ${what}.`, { param });
}

function nextPath({ request }: RequestContext, offset: number): string {
  const { pathname, searchParams } = new URL(request.url);
  searchParams.set("offset", String(offset));
  return `${pathname}?${searchParams}`;
}

/** Models described before the event loop gets its turn: those that no list had yet take 0.1 ms each. */
const DESCRIBED_AT_ONCE = 200;

async function listResponse(
  catalogue: ModelCatalogue,
  models: readonly CatalogueModel[],
  rest: object,
): Promise<Response> {
  const data: string[] = [];
  for (const model of models) {
    data.push(catalogue.listed(model));
    if (data.length % DESCRIBED_AT_ONCE === 0) await yieldToEventLoop();
  }
  return jsonTextResponse(
    `{"object":"list","data":[${data.join(",")}],${JSON.stringify(rest).slice(1)}`,
  );
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
      return listResponse(catalogue, models, { total });
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
