import type { Static } from "typebox";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Attributes } from "../../lib/vector-store.ts";
import {
  addBatchBody,
  addFileBody,
  attributesBody,
  batchObject,
  contentPage,
  contentQuery,
  deletedStoreFile,
  storeFileList,
  storeFileObject,
  storeFilesQuery,
} from "./schemas.ts";
import {
  addedFile,
  batchShape,
  listShape,
  pageOf,
  type StatedFile,
  storeFileShape,
} from "./shapes.ts";
import type { VectorStores } from "./vector-stores.ts";

const reading: Access = { kind: "storage", scope: "files:read" };
const writing: Access = { kind: "storage", scope: "files:write" };
const tag = "Vector stores";
const FILES = "/v1/vector_stores/:id/files";
const BATCHES = "/v1/vector_stores/:id/file_batches";
/** Chunks in one page of a file's content. */
const CONTENT_PAGE = 100;

const file = { description: "The file in the vector store.", schema: storeFileObject };
const batch = { description: "The batch.", schema: batchObject };
const page = { description: "A page of files.", schema: storeFileList };

/** Returns the routes of files in a vector store, single and in batches. */
export function fileRoutes(stores: VectorStores): RouteDefinition[] {
  return [...listRoutes(stores), ...singleRoutes(stores), ...batchRoutes(stores)];
}

function listRoutes(stores: VectorStores): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: FILES,
      tag,
      operationId: "vector_stores.files.create",
      summary: "Add file to vector store",
      access: writing,
      body: addFileBody,
      responses: { 200: file },
      async handle({ caller, params, body }) {
        const added = addedFile(body);
        return jsonResponse(storeFileShape(await stores.addFile(caller, params.id, added)));
      },
    }),
    route({
      method: "GET",
      path: FILES,
      tag,
      operationId: "vector_stores.files.list",
      summary: "List vector store files",
      access: reading,
      query: storeFilesQuery,
      responses: { 200: page },
      handle: (context) => list(context, stores),
    }),
  ];
}

interface ListParams {
  readonly id: string;
  readonly batch?: string;
}

async function list(
  { caller, params, query }: RequestContext<unknown, Static<typeof storeFilesQuery>, ListParams>,
  stores: VectorStores,
): Promise<Response> {
  const listed = await stores.listFiles({
    organizationId: caller.key.organizationId,
    vectorStoreId: params.id,
    batchId: params.batch,
    status: query.filter,
    page: pageOf(query),
  });
  return jsonResponse(listShape(listed, storeFileShape));
}

async function fileResponse(file: ReturnType<VectorStores["findFile"]>): Promise<Response> {
  return jsonResponse(storeFileShape(await file));
}

async function batchResponse(batch: ReturnType<VectorStores["findBatch"]>): Promise<Response> {
  return jsonResponse(batchShape(await batch));
}

function singleRoutes(stores: VectorStores): RouteDefinition[] {
  const path = `${FILES}/:file`;
  return [
    route({
      method: "GET",
      path,
      tag,
      operationId: "vector_stores.files.retrieve",
      summary: "Retrieve vector store file",
      access: reading,
      responses: { 200: file },
      handle: ({ caller, params }) =>
        fileResponse(stores.findFile(caller.key.organizationId, params.id, params.file)),
    }),
    route({
      method: "POST",
      path,
      tag,
      operationId: "vector_stores.files.update",
      summary: "Update file attributes",
      access: writing,
      body: attributesBody,
      responses: { 200: file },
      async handle({ caller: { key }, params, body }) {
        const attributes = body.attributes ?? {};
        return fileResponse(
          stores.setAttributes(key.organizationId, params.id, params.file, attributes),
        );
      },
    }),
    route({
      method: "DELETE",
      path,
      tag,
      operationId: "vector_stores.files.delete",
      summary: "Remove file from vector store",
      access: writing,
      responses: {
        200: {
          description: "The file was removed from the vector store. The file itself still exists.",
          schema: deletedStoreFile,
        },
      },
      async handle({ caller, params }) {
        await stores.removeFile(caller.key.organizationId, params.id, params.file);
        return jsonResponse({
          id: params.file,
          object: "vector_store.file.deleted",
          deleted: true,
        });
      },
    }),
    route({
      method: "GET",
      path: `${path}/content`,
      tag,
      operationId: "vector_stores.files.content.list",
      summary: "Retrieve file content",
      access: reading,
      query: contentQuery,
      responses: { 200: { description: "A page of the indexed chunks.", schema: contentPage } },
      async handle({ caller, params, query: { page: position = 0 } }) {
        const { texts, hasMore } = await stores.readContent(
          caller.key.organizationId,
          params.id,
          params.file,
          { position, limit: CONTENT_PAGE },
        );
        return jsonResponse({
          object: "vector_store.file_content.page",
          data: texts.map((text) => ({ type: "text", text })),
          has_more: hasMore,
          next_page: hasMore ? String(position + CONTENT_PAGE) : null,
        });
      },
    }),
  ];
}

interface BatchBody {
  readonly file_ids?: readonly string[] | null;
  readonly files?: readonly StatedFile[] | null;
  readonly attributes?: Attributes | null;
  readonly chunking_strategy?: StatedFile["chunking_strategy"];
}

function batchRoutes(stores: VectorStores): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: BATCHES,
      tag,
      operationId: "vector_stores.file_batches.create",
      summary: "Create file batch",
      access: writing,
      body: addBatchBody,
      responses: { 200: batch },
      async handle({ caller, params, body }) {
        const added = batchFiles(body).map(addedFile);
        return jsonResponse(batchShape(await stores.addBatch(caller, params.id, added)));
      },
    }),
    route({
      method: "GET",
      path: `${BATCHES}/:batch`,
      tag,
      operationId: "vector_stores.file_batches.retrieve",
      summary: "Retrieve file batch",
      access: reading,
      responses: { 200: batch },
      handle: ({ caller, params }) =>
        batchResponse(stores.findBatch(caller.key.organizationId, params.id, params.batch)),
    }),
    route({
      method: "POST",
      path: `${BATCHES}/:batch/cancel`,
      tag,
      operationId: "vector_stores.file_batches.cancel",
      summary: "Cancel file batch",
      access: writing,
      responses: {
        200: { ...batch, description: "The batch. It indexes no further files." },
      },
      handle: ({ caller, params }) =>
        batchResponse(stores.cancelBatch(caller.key.organizationId, params.id, params.batch)),
    }),
    route({
      method: "GET",
      path: `${BATCHES}/:batch/files`,
      tag,
      operationId: "vector_stores.file_batches.files.list",
      summary: "List files of a batch",
      access: reading,
      query: storeFilesQuery,
      responses: { 200: page },
      handle: (context) => list(context, stores),
    }),
  ];
}

/** Returns the files of a batch. Throws 400 unless there is exactly one list, with at least one file. */
function batchFiles({ file_ids, files, attributes, chunking_strategy }: BatchBody): StatedFile[] {
  const ofIds = file_ids?.map((file_id) => ({ file_id, attributes, chunking_strategy }));
  const stated = ofIds ?? files ?? [];
  if (stated.length === 0 || (ofIds !== undefined && (files ?? undefined) !== undefined)) {
    throw new GatewayError(
      "invalid_body",
      'Request body: must have either "file_ids" or "files", with at least one file.',
      { param: "file_ids" },
    );
  }
  return [...stated] as StatedFile[];
}
