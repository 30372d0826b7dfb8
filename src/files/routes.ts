import { jsonResponse } from "../http/json-response.ts";
import type { Access, RequestContext, RouteDefinition } from "../http/route.ts";
import { type Clock, steady } from "../lib/clock.ts";
import { contentResponse, downloadUrlShape } from "./content.ts";
import type { FileLibrary } from "./file-library.ts";
import type { FileUploads } from "./file-uploads.ts";
import * as schema from "./schema.ts";
import { fileShape } from "./shape.ts";
import { receiveUpload } from "./upload.ts";

const reading: Access = { kind: "storage", scope: "files:read" };
const writing: Access = { kind: "storage", scope: "files:write" };
const tag = "Files";
const DEFAULT_PAGE = 100;
const CONTENT = {
  200: { description: "The raw bytes, of the file's type", contentType: "*/*" },
  206: { description: "The range that was asked for", contentType: "*/*" },
  304: { description: "The caller has the content already" },
  412: { description: "The content is not the one that If-Match names" },
  416: { description: "The content has no such range" },
} as const;

export interface FileRouteDependencies {
  readonly uploads: FileUploads;
  readonly files: FileLibrary;
  readonly clock: Clock;
  /** Without a slash at its end; undefined: links lead to the host that a request names. */
  readonly publicUrl: string | undefined;
  readonly uploadMinBytesPerSecond: number;
}

/** Files (spec 4.2). */
export function fileRoutes(dependencies: FileRouteDependencies): RouteDefinition[] {
  const { uploads, files } = dependencies;
  const receiving = {
    clock: steady(dependencies.clock),
    minBytesPerSecond: dependencies.uploadMinBytesPerSecond,
  };
  const find = (context: RequestContext) =>
    files.find(context.caller.key.organizationId, context.params.id!);
  return [
    {
      method: "POST",
      path: "/v1/files",
      tag,
      summary: "Upload a file",
      access: writing,
      form: schema.uploadForm,
      responses: { 200: { description: "The file", schema: schema.fileObject } },
      handle: async (context) =>
        jsonResponse(fileShape(await receiveUpload(context, uploads, receiving))),
    },
    {
      method: "GET",
      path: "/v1/files",
      tag,
      summary: "List the organization's files",
      access: reading,
      query: schema.listFilesQuery,
      responses: { 200: { description: "A page of files", schema: schema.fileList } },
      handle: (context) => list(context, files),
    },
    {
      method: "GET",
      path: "/v1/files/:id",
      tag,
      summary: "Retrieve a file's metadata",
      access: reading,
      responses: { 200: { description: "The file", schema: schema.fileObject } },
      handle: async (context) => jsonResponse(fileShape(await find(context))),
    },
    {
      method: "GET",
      path: "/v1/files/:id/content",
      tag,
      summary: "Download a file, or with Range a part of it",
      access: reading,
      responses: CONTENT,
      handle: async (context) => contentResponse(context, files, await find(context)),
    },
    {
      method: "GET",
      path: "/v1/files/:id/download_url",
      tag,
      summary: "Make an address that gives the content for an hour without an API key",
      access: reading,
      responses: { 200: { description: "The address", schema: schema.downloadUrl } },
      handle: async (context) =>
        jsonResponse(
          await downloadUrlShape(
            context.request,
            files,
            await find(context),
            dependencies.publicUrl,
          ),
        ),
    },
    {
      method: "GET",
      path: "/v1/files/:id/download",
      tag,
      summary: "Download a file by a signed address",
      access: { kind: "public" },
      query: schema.linkQuery,
      responses: CONTENT,
      async handle(context) {
        const proof = context.query as { expires: number; signature: string };
        return contentResponse(context, files, await files.findByLink(context.params.id!, proof));
      },
    },
    {
      method: "DELETE",
      path: "/v1/files/:id",
      tag,
      summary: "Delete a file",
      access: writing,
      responses: { 200: { description: "It is gone", schema: schema.deletedFile } },
      async handle(context) {
        await files.remove(context.caller.key.organizationId, context.params.id!);
        return jsonResponse({ id: context.params.id, object: "file", deleted: true });
      },
    },
  ];
}

async function list(context: RequestContext, files: FileLibrary): Promise<Response> {
  const query = context.query as {
    purpose?: string;
    limit?: number;
    order?: "asc" | "desc";
    after?: string;
  };
  const { files: listed, hasMore } = await files.list({
    organizationId: context.caller.key.organizationId,
    purpose: query.purpose,
    order: query.order ?? "desc",
    after: query.after,
    limit: query.limit ?? DEFAULT_PAGE,
  });
  return jsonResponse({
    object: "list",
    data: listed.map(fileShape),
    first_id: listed[0]?.id ?? null,
    last_id: listed.at(-1)?.id ?? null,
    has_more: hasMore,
  });
}
