import type { Static } from "typebox";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { fileRoutes } from "./file-routes.ts";
import { readFilter } from "./filters.ts";
import {
  createStoreBody,
  DEFAULT_RESULTS,
  deletedStore,
  searchBody,
  searchPage,
  storeList,
  storeObject,
  storesQuery,
  updateStoreBody,
} from "./schemas.ts";
import type { RankingWeights } from "./search.ts";
import { addedFile, listShape, pageOf, searchShape, storeShape } from "./shapes.ts";
import type { VectorStores } from "./vector-stores.ts";

const reading: Access = { kind: "storage", scope: "files:read" };
const writing: Access = { kind: "storage", scope: "files:write" };
const tag = "Vector stores";
const STORES = "/v1/vector_stores";

/** Returns the vector store routes, in OpenAI's form. */
export function vectorStoreRoutes(stores: VectorStores): RouteDefinition[] {
  return [...storeRoutes(stores), searchRoute(stores), ...fileRoutes(stores)];
}

function storeRoutes(stores: VectorStores): RouteDefinition[] {
  const store = { description: "The vector store.", schema: storeObject };
  return [
    route({
      method: "POST",
      path: STORES,
      tag,
      operationId: "vector_stores.create",
      summary: "Create vector store",
      access: writing,
      body: createStoreBody,
      responses: { 200: store },
      handle: async (context) => jsonResponse(storeShape(await create(context, stores))),
    }),
    route({
      method: "GET",
      path: STORES,
      tag,
      operationId: "vector_stores.list",
      summary: "List vector stores",
      access: reading,
      query: storesQuery,
      responses: { 200: { description: "A page of vector stores.", schema: storeList } },
      handle: async ({ caller, query }) =>
        jsonResponse(
          listShape(await stores.list(caller.key.organizationId, pageOf(query)), storeShape),
        ),
    }),
    route({
      method: "GET",
      path: `${STORES}/:id`,
      tag,
      operationId: "vector_stores.retrieve",
      summary: "Retrieve vector store",
      access: reading,
      responses: { 200: store },
      handle: async ({ caller, params }) =>
        jsonResponse(storeShape(await stores.find(caller.key.organizationId, params.id))),
    }),
    route({
      method: "POST",
      path: `${STORES}/:id`,
      tag,
      operationId: "vector_stores.update",
      summary: "Update vector store",
      access: writing,
      body: updateStoreBody,
      responses: { 200: store },
      async handle({ caller, params, body: { name, metadata, expires_after: expiry } }) {
        const changed = await stores.update(caller.key.organizationId, params.id, {
          ...(name !== undefined && { name }),
          ...(metadata !== undefined && { metadata }),
          ...(expiry !== undefined && { expiresAfterDays: expiry?.days ?? null }),
        });
        return jsonResponse(storeShape(changed));
      },
    }),
    route({
      method: "DELETE",
      path: `${STORES}/:id`,
      tag,
      operationId: "vector_stores.delete",
      summary: "Delete vector store",
      access: writing,
      responses: {
        200: {
          description: "The vector store was deleted. Its files still exist.",
          schema: deletedStore,
        },
      },
      async handle({ caller, params: { id } }) {
        await stores.remove(caller.key.organizationId, id);
        return jsonResponse({ id, object: "vector_store.deleted", deleted: true });
      },
    }),
  ];
}

function create(
  { caller, body: stated }: RequestContext<Static<typeof createStoreBody>>,
  stores: VectorStores,
) {
  const { chunking_strategy } = stated;
  const files = (stated.file_ids ?? []).map((file_id) => addedFile({ file_id, chunking_strategy }));
  const store = {
    name: stated.name ?? null,
    description: stated.description ?? null,
    metadata: stated.metadata ?? null,
    expiresAfterDays: stated.expires_after?.days ?? null,
  };
  return stores.create(caller, store, files);
}

function searchRoute(stores: VectorStores): RouteDefinition {
  return route({
    method: "POST",
    path: `${STORES}/:id/search`,
    tag,
    operationId: "vector_stores.search",
    summary: "Search vector store",
    access: reading,
    body: searchBody,
    responses: { 200: { description: "The passages, best first.", schema: searchPage } },
    async handle(context) {
      const { query, max_num_results, filters, ranking_options } = context.body;
      const queries = typeof query === "string" ? [query] : query;
      const results = await stores.search(context, context.params.id, queries, {
        filter: filters === undefined || filters === null ? undefined : readFilter(filters),
        maxResults: max_num_results ?? DEFAULT_RESULTS,
        scoreThreshold: ranking_options?.score_threshold ?? 0,
        weights: weightsOf(ranking_options?.hybrid_search ?? undefined),
      });
      return jsonResponse(searchShape(queries, results));
    },
  });
}

/** Returns the weights, 1 by default. Throws 400 if both are 0. */
function weightsOf(
  stated: { readonly embedding_weight: number; readonly text_weight: number } | undefined,
): RankingWeights {
  const weights = { embedding: stated?.embedding_weight ?? 1, text: stated?.text_weight ?? 1 };
  if (weights.embedding + weights.text > 0) return weights;
  throw new GatewayError(
    "invalid_body",
    'Request body field "ranking_options.hybrid_search": one of the weights must be above 0.',
    { param: "ranking_options.hybrid_search" },
  );
}
