import { Type } from "typebox";
import { listStoreObjectFiles, listStoreObjects } from "../../../db/queries/object-lists.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { storeFileShape, storeShape } from "../../jobs/vector-stores/shapes.ts";
import { GatewayError } from "../../lib/errors.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { STORE_FILE_STATUSES, type VectorStore } from "../../lib/vector-store.ts";
import {
  auditedAct,
  done,
  isoOrNull,
  listResponse,
  listSchema,
  OBJECTS,
  type ObjectServices,
  pageFields,
  pageIn,
  pageQuery,
  sessionAccess,
  shown,
  tag,
  time,
} from "./object-access.ts";

const text = nullable(Type.String());
const store = Type.Object({
  id: Type.String(),
  name: text,
  status: Type.String(),
  usage_bytes: Type.Integer(),
  file_counts: Type.Record(Type.String(), Type.Integer()),
  key_id: text,
  created_at: Type.String(),
  last_active_at: Type.String(),
  expires_at: time,
});
const storeFile = Type.Object({
  id: Type.String(),
  filename: text,
  status: Type.String(),
  error: nullable(Type.Object({ code: Type.String(), message: Type.String() })),
  usage_bytes: Type.Integer(),
  embedding_model: text,
  created_at: Type.String(),
});
const filesQuery = Type.Object(
  { status: Type.Optional(Type.Enum([...STORE_FILE_STATUSES])), ...pageFields },
  { additionalProperties: false },
);

/** Returns the routes of the page of vector stores. */
export function storeObjectRoutes({ sql, stores }: ObjectServices): RouteDefinition[] {
  const path = `${OBJECTS}/vector_stores`;
  const reading = sessionAccess("files:read");
  const writing = sessionAccess("files:write");
  const found = async (context: RequestContext<unknown, unknown, { readonly id: string }>) => {
    const record = await stores.find(context.caller.key.organizationId, context.params.id);
    return shown(sql, context, record, notFound);
  };
  return [
    route({
      method: "GET",
      path,
      tag,
      summary: "List vector stores",
      access: reading,
      query: pageQuery,
      responses: { 200: { description: "The stores, newest first", schema: listSchema(store) } },
      handle: async (context) =>
        listResponse(await listStoreObjects(sql, pageIn(context)), storeObjectShape),
    }),
    route({
      method: "GET",
      path: `${path}/:id`,
      tag,
      summary: "Get a vector store",
      access: reading,
      responses: { 200: { description: "The store", schema: store } },
      handle: async (context) => jsonResponse(storeObjectShape(await found(context))),
    }),
    route({
      method: "GET",
      path: `${path}/:id/files`,
      tag,
      summary: "List files of a vector store",
      access: reading,
      query: filesQuery,
      responses: { 200: { description: "The files, newest first", schema: listSchema(storeFile) } },
      async handle(context) {
        const { id, organizationId } = await found(context);
        const { status } = context.query;
        const { after, limit } = pageIn(context);
        const page = { organizationId, vectorStoreId: id, status, after, limit };
        return listResponse(await listStoreObjectFiles(sql, page), ({ file, filename }) => {
          const { created_at: _, last_error: error, ...shape } = storeFileShape(file);
          const { id, status, usage_bytes, embedding_model } = shape;
          return {
            ...{ id, filename, status, error, usage_bytes, embedding_model },
            created_at: isoTime(file.createdAtMs),
          };
        });
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/:id`,
      tag,
      summary: "Delete a vector store",
      access: writing,
      responses: { 200: { description: "The store was deleted", schema: done } },
      async handle(context) {
        const { id, organizationId, name } = await found(context);
        const act = { action: "vector_store.deleted", id, after: { name } };
        await stores.remove(organizationId, id, auditedAct(sql, context, act));
        return jsonResponse({ id });
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/:id/files/:file`,
      tag,
      summary: "Remove a file from a vector store",
      access: writing,
      responses: { 200: { description: "The file was removed", schema: done } },
      async handle(context) {
        const { id, organizationId } = await found(context);
        const { file } = context.params;
        const act = { action: "vector_store.file_removed", id, after: { file_id: file } };
        await stores.removeFile(organizationId, id, file, auditedAct(sql, context, act));
        return jsonResponse({ id: file });
      },
    }),
  ];
}

function notFound(): GatewayError {
  return new GatewayError("vector_store_not_found", "There is no such vector store.");
}

function storeObjectShape(record: VectorStore) {
  const { id, name, status, usage_bytes, file_counts } = storeShape(record);
  return {
    ...{ id, name, status, usage_bytes, file_counts },
    key_id: record.keyId,
    created_at: isoTime(record.createdAtMs),
    last_active_at: isoTime(record.lastActiveAtMs),
    expires_at: isoOrNull(record.expiresAtMs),
  };
}
