import { jsonResponse } from "../../http/error-response.ts";
import { type Access, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Attributes, StoreFileStatus } from "../../lib/vector-store.ts";
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

const file = { description: "The file in the vector store", schema: storeFileObject };
const batch = { description: "The batch", schema: batchObject };
const page = { description: "A page of files", schema: storeFileList };

/** Files of a vector store, one by one and in batches. */
export function fileRoutes(stores: VectorStores): RouteDefinition[] {
  return [...listRoutes(stores), ...singleRoutes(stores), ...batchRoutes(stores)];
}

function listRoutes(stores: VectorStores): RouteDefinition[] {
  return [
    route({
      method: "POST",
      path: FILES,
      tag,
      summary: "Add a file to a vector store, which indexes it in the background",
      access: writing,
      body: addFileBody,
      responses: { 200: file },
      async handle({ caller, params, body }) {
        const added = addedFile(body);
        return jsonResponse(storeFileShape(await stores.addFile(caller, params.id!, added)));
      },
    }),
    {
      method: "GET",
      path: FILES,
      tag,
      summary: "List the files of a vector store",
      access: reading,
      query: storeFilesQuery,
      responses: { 200: page },
      handle: (context) => list(context, stores),
    },
  ];
}

async function list(
  { caller, params, query }: RequestContext,
  stores: VectorStores,
): Promise<Response> {
  const listed = await stores.listFiles({
    organizationId: caller.key.organizationId,
    vectorStoreId: params.id!,
    batchId: params.batch,
    status: query.filter as StoreFileStatus | undefined,
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
    {
      method: "GET",
      path,
      tag,
      summary: "Retrieve a file of a vector store, with its state",
      access: reading,
      responses: { 200: file },
      handle: ({ caller, params }) =>
        fileResponse(stores.findFile(caller.key.organizationId, params.id!, params.file!)),
    },
    route({
      method: "POST",
      path,
      tag,
      summary: "Set the attributes of a file in a vector store",
      access: writing,
      body: attributesBody,
      responses: { 200: file },
      async handle({ caller: { key }, params, body }) {
        const attributes = body.attributes ?? {};
        return fileResponse(
          stores.setAttributes(key.organizationId, params.id!, params.file!, attributes),
        );
      },
    }),
    {
      method: "DELETE",
      path,
      tag,
      summary: "Take a file out of a vector store; the file itself stays",
      access: writing,
      responses: { 200: { description: "It is out of it", schema: deletedStoreFile } },
      async handle({ caller, params }) {
        await stores.removeFile(caller.key.organizationId, params.id!, params.file!);
        return jsonResponse({
          id: params.file,
          object: "vector_store.file.deleted",
          deleted: true,
        });
      },
    },
    {
      method: "GET",
      path: `${path}/content`,
      tag,
      summary: "Read the text of a file as it was indexed, in chunks",
      access: reading,
      query: contentQuery,
      responses: { 200: { description: "A page of chunks", schema: contentPage } },
      handle: (context) => content(context, stores),
    },
  ];
}

async function content(
  { caller, params, query }: RequestContext,
  stores: VectorStores,
): Promise<Response> {
  const position = (query.page as number | undefined) ?? 0;
  const { texts, hasMore } = await stores.readContent(
    caller.key.organizationId,
    params.id!,
    params.file!,
    { position, limit: CONTENT_PAGE },
  );
  return jsonResponse({
    object: "vector_store.file_content.page",
    data: texts.map((text) => ({ type: "text", text })),
    has_more: hasMore,
    next_page: hasMore ? String(position + CONTENT_PAGE) : null,
  });
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
      summary: "Add up to 2000 files to a vector store",
      access: writing,
      body: addBatchBody,
      responses: { 200: batch },
      async handle({ caller, params, body }) {
        const added = batchFiles(body).map(addedFile);
        return jsonResponse(batchShape(await stores.addBatch(caller, params.id!, added)));
      },
    }),
    {
      method: "GET",
      path: `${BATCHES}/:batch`,
      tag,
      summary: "Retrieve a batch of files, with its state",
      access: reading,
      responses: { 200: batch },
      handle: ({ caller, params }) =>
        batchResponse(stores.findBatch(caller.key.organizationId, params.id!, params.batch!)),
    },
    {
      method: "POST",
      path: `${BATCHES}/:batch/cancel`,
      tag,
      summary: "Cancel a batch: files that are not indexed yet are not going to be",
      access: writing,
      responses: { 200: batch },
      handle: ({ caller, params }) =>
        batchResponse(stores.cancelBatch(caller.key.organizationId, params.id!, params.batch!)),
    },
    {
      method: "GET",
      path: `${BATCHES}/:batch/files`,
      tag,
      summary: "List the files of a batch",
      access: reading,
      query: storeFilesQuery,
      responses: { 200: page },
      handle: (context) => list(context, stores),
    },
  ];
}

/** Throws 400 unless there is exactly one list, of one file at least. */
function batchFiles({ file_ids, files, attributes, chunking_strategy }: BatchBody): StatedFile[] {
  const ofIds = file_ids?.map((file_id) => ({ file_id, attributes, chunking_strategy }));
  const stated = ofIds ?? files ?? [];
  if (stated.length === 0 || (ofIds !== undefined && (files ?? undefined) !== undefined)) {
    throw new GatewayError(
      "invalid_body",
      'Request body: give either "file_ids" or "files", with one file at least.',
      { param: "file_ids" },
    );
  }
  return [...stated] as StatedFile[];
}
