import { Type } from "typebox";
import { listFileObjects, readFileUsage } from "../../../db/queries/object-lists.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { nullable, type RequestContext, type RouteDefinition, route } from "../../http/route.ts";
import { downloadUrlShape } from "../../jobs/files/routes.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type FileRecord, RESULT_PURPOSES, UPLOAD_PURPOSES } from "../../lib/file-record.ts";
import { fileQuotaOf } from "../../lib/plans.ts";
import { isoTime } from "../../lib/utc-time.ts";
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
  recordRead,
  sessionAccess,
  shown,
  tag,
  time,
} from "./object-access.ts";

const query = Type.Object(
  { purpose: Type.Optional(Type.Enum([...UPLOAD_PURPOSES, ...RESULT_PURPOSES])), ...pageFields },
  { additionalProperties: false },
);
const file = Type.Object({
  id: Type.String(),
  filename: Type.String(),
  purpose: Type.String(),
  bytes: Type.Integer(),
  status: Type.String(),
  status_details: nullable(Type.String()),
  key_id: nullable(Type.String()),
  created_at: Type.String(),
  expires_at: time,
});

/** Returns the routes of the page of files. */
export function fileObjectRoutes(services: ObjectServices): RouteDefinition[] {
  const { sql, files, publicUrl } = services;
  const path = `${OBJECTS}/files`;
  const found = async (context: RequestContext<unknown, unknown, { readonly id: string }>) => {
    const record = await files.find(context.caller.key.organizationId, context.params.id);
    return shown(sql, context, record, notFound);
  };
  return [
    route({
      method: "GET",
      path,
      tag,
      summary: "List files",
      access: sessionAccess("files:read"),
      query,
      responses: { 200: { description: "The files, newest first", schema: listSchema(file) } },
      async handle(context) {
        const page = { ...pageIn(context), purpose: context.query.purpose };
        const [listed, usage] = await Promise.all([
          listFileObjects(sql, page),
          readFileUsage(sql, page.organizationId),
        ]);
        const quota_bytes = fileQuotaOf(usage);
        return listResponse(listed, fileShape, { used_bytes: usage.usedBytes, quota_bytes });
      },
    }),
    route({
      method: "POST",
      path: `${path}/:id/download_url`,
      tag,
      summary: "Create a URL that downloads the content of a file",
      access: sessionAccess("files:read"),
      responses: { 200: { description: "A URL that is valid for one hour" } },
      async handle(context) {
        const record = await found(context);
        const { id, filename } = record;
        await recordRead(sql, context, { action: "file.downloaded", id, after: { filename } });
        return jsonResponse(await downloadUrlShape(context.request, files, record, publicUrl));
      },
    }),
    route({
      method: "DELETE",
      path: `${path}/:id`,
      tag,
      summary: "Delete a file",
      access: sessionAccess("files:write"),
      responses: { 200: { description: "The file was deleted", schema: done } },
      async handle(context) {
        const { id, organizationId, filename } = await found(context);
        const act = { action: "file.deleted", id, after: { filename } };
        await files.remove(organizationId, id, auditedAct(sql, context, act));
        return jsonResponse({ id });
      },
    }),
  ];
}

function notFound(): GatewayError {
  return new GatewayError("file_not_found", "There is no such file.");
}

function fileShape(record: FileRecord) {
  const { id, filename, purpose, bytes, status } = record;
  return {
    ...{ id, filename, purpose, bytes, status },
    status_details: record.statusDetails,
    key_id: record.keyId,
    created_at: isoTime(record.createdAtMs),
    expires_at: isoOrNull(record.expiresAtMs),
  };
}
