import { type Static, Type } from "typebox";
import { attachment, downloadResponse } from "../../http/download.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { leastFileBytes, oneFileLimits, type Pace, readForm } from "../../http/multipart.ts";
import { publicUrl } from "../../http/request-headers.ts";
import {
  type Access,
  nullable,
  type RequestContext,
  type RouteDefinition,
  route,
} from "../../http/route.ts";
import { type Clock, steady } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type FileRecord, RESULT_PURPOSES, UPLOAD_PURPOSES } from "../../lib/file-record.ts";
import { MAX_FILE_BYTES, MAX_LIFETIME_SECONDS, MIN_LIFETIME_SECONDS } from "./file-check.ts";
import type { FileLibrary } from "./file-library.ts";
import type { FileUpload, FileUploads } from "./file-uploads.ts";
import { MAX_LINE_BYTES } from "./json-lines-check.ts";

const MAX_LINE_MB = MAX_LINE_BYTES / 1024 / 1024;
const MAX_PAGE = 10_000;
const purposes = [...UPLOAD_PURPOSES];
export const uploadForm = Type.Object(
  {
    file: Type.String({
      format: "binary",
      description: `At most 512 MB, or 20 MB for vision. fine-tune: JSONL in chat format. batch: JSONL of requests. Each line of both has at most ${MAX_LINE_MB} MB. vision: PNG, JPEG or WEBP with at most 16384 pixels per side.`,
    }),
    purpose: Type.Enum(purposes, { description: "Can be sent before or after the file." }),
    expires_after: Type.Optional(
      Type.Object(
        {
          anchor: Type.Literal("created_at"),
          seconds: Type.Integer({ minimum: MIN_LIFETIME_SECONDS, maximum: MAX_LIFETIME_SECONDS }),
        },
        {
          additionalProperties: false,
          description:
            "Sent as the parts expires_after[anchor] and expires_after[seconds], or as one JSON part. If absent, files are stored until they are deleted, and files for vision for at most 24 hours.",
        },
      ),
    ),
  },
  { additionalProperties: false },
);

const listFilesQuery = Type.Object(
  {
    purpose: Type.Optional(Type.Enum([...purposes, ...RESULT_PURPOSES])),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: 100 })),
    order: Type.Optional(Type.Enum(["asc", "desc"], { default: "desc" })),
    after: Type.Optional(
      Type.String({
        // A UUIDv7. A text that was never a file id has no position in the list.
        pattern: "^file_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$",
        description: "Id of a file: the page begins after it, even if it is deleted.",
      }),
    ),
  },
  { additionalProperties: false },
);

const linkQuery = Type.Object(
  {
    expires: Type.Integer({ minimum: 0, description: "Unix seconds." }),
    signature: Type.String({ pattern: "^[0-9a-f]{64}$" }),
  },
  { additionalProperties: false },
);

const fileObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("file"),
    bytes: Type.Integer(),
    filename: Type.String(),
    purpose: Type.Enum([...purposes, ...RESULT_PURPOSES]),
    created_at: Type.Integer({ description: "Unix seconds." }),
    expires_at: nullable(
      Type.Integer({
        description: "Unix seconds. Null if the file is stored until it is deleted.",
      }),
    ),
    status: Type.Enum(["uploaded", "processed", "error"]),
    status_details: nullable(Type.String()),
  },
  { title: "FileObject" },
);

const fileList = Type.Object(
  {
    object: Type.Literal("list"),
    data: Type.Array(fileObject),
    first_id: nullable(Type.String()),
    last_id: nullable(Type.String()),
    has_more: Type.Boolean(),
  },
  { title: "FileList" },
);

const deletedFile = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("file"),
    deleted: Type.Literal(true),
  },
  { title: "DeletedFile" },
);

const downloadUrl = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("file.download_url"),
    url: Type.String({ description: "Valid without an API key." }),
    expires_at: Type.Integer({ description: "Unix seconds." }),
  },
  { title: "FileDownloadUrl" },
);

const reading: Access = { kind: "storage", scope: "files:read" };
const writing: Access = { kind: "storage", scope: "files:write" };
const tag = "Files";
const DEFAULT_PAGE = 100;
const CONTENT = {
  200: { description: "The raw bytes, with the file's content type.", contentType: "*/*" },
  206: { description: "The requested range.", contentType: "*/*" },
  304: { description: "The caller's copy is current." },
  412: { description: "The content does not match If-Match." },
  416: { description: "The content has no such range." },
} as const;

interface FileRouteDependencies {
  readonly uploads: FileUploads;
  readonly files: FileLibrary;
  readonly clock: Clock;
  /**
   * The public URL of the gateway, without a slash at the end. If undefined, links use the host of each
   * request.
   */
  readonly publicUrl: string | undefined;
  readonly uploadMinBytesPerSecond: number;
}

/** Returns the file routes (spec 4.2). */
export function fileRoutes(dependencies: FileRouteDependencies): RouteDefinition[] {
  return [...recordRoutes(dependencies), ...contentRoutes(dependencies)];
}

function recordRoutes({
  uploads,
  files,
  ...dependencies
}: FileRouteDependencies): RouteDefinition[] {
  const receiving = {
    clock: steady(dependencies.clock),
    minBytesPerSecond: dependencies.uploadMinBytesPerSecond,
  };
  return [
    {
      method: "POST",
      path: "/v1/files",
      tag,
      operationId: "files.create",
      summary: "Upload file",
      access: writing,
      form: uploadForm,
      responses: { 200: { description: "The file.", schema: fileObject } },
      handle: async (context) =>
        jsonResponse(fileShape(await receiveUpload(context, uploads, receiving))),
    },
    route({
      method: "GET",
      path: "/v1/files",
      tag,
      operationId: "files.list",
      summary: "List files",
      access: reading,
      query: listFilesQuery,
      responses: { 200: { description: "A page of files.", schema: fileList } },
      handle: (context) => list(context, files),
    }),
    route({
      method: "GET",
      path: "/v1/files/:id",
      tag,
      operationId: "files.retrieve",
      summary: "Retrieve file",
      access: reading,
      responses: { 200: { description: "The file.", schema: fileObject } },
      handle: async ({ caller, params }) =>
        jsonResponse(fileShape(await files.find(caller.key.organizationId, params.id))),
    }),
    route({
      method: "DELETE",
      path: "/v1/files/:id",
      tag,
      operationId: "files.delete",
      summary: "Delete file",
      access: writing,
      responses: { 200: { description: "The file was deleted.", schema: deletedFile } },
      async handle(context) {
        await files.remove(context.caller.key.organizationId, context.params.id);
        return jsonResponse({ id: context.params.id, object: "file", deleted: true });
      },
    }),
  ];
}

function contentRoutes({ files, publicUrl: publicBase }: FileRouteDependencies): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/files/:id/content",
      tag,
      operationId: "files.content.retrieve",
      summary: "Download file content",
      access: reading,
      responses: CONTENT,
      async handle(context) {
        const { caller, params } = context;
        const file = await files.find(caller.key.organizationId, params.id);
        return contentResponse(context, files, file);
      },
    }),
    route({
      method: "GET",
      path: "/v1/files/:id/download_url",
      tag,
      operationId: "files.download_url.create",
      summary: "Create download URL",
      access: reading,
      responses: {
        200: {
          description: "A URL that returns the content for one hour, without an API key.",
          schema: downloadUrl,
        },
      },
      async handle({ request, caller, params }) {
        const file = await files.find(caller.key.organizationId, params.id);
        return jsonResponse(await downloadUrlShape(request, files, file, publicBase));
      },
    }),
    route({
      method: "GET",
      path: "/v1/files/:id/download",
      tag,
      operationId: "files.download",
      summary: "Download file by signed URL",
      access: { kind: "public" },
      query: linkQuery,
      responses: CONTENT,
      async handle(context) {
        const proof = context.query;
        return contentResponse(context, files, await files.findByLink(context.params.id, proof));
      },
    }),
  ];
}

async function list(
  { caller, query }: RequestContext<unknown, Static<typeof listFilesQuery>>,
  files: FileLibrary,
): Promise<Response> {
  const { files: listed, hasMore } = await files.list({
    organizationId: caller.key.organizationId,
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

/** Creates a file from a form with `file` and `purpose`, without holding the file in memory. */
export async function receiveUpload(
  context: RequestContext,
  uploads: Pick<FileUploads, "run">,
  receiving: Pace,
): Promise<FileRecord> {
  const { request } = context;
  const limits = oneFileLimits(MAX_FILE_BYTES);
  const leastBytes = leastFileBytes(request, limits);
  // A slow store can delay the client for longer than the idle timeout of a connection.
  const closeWhenIdle = context.keepOpen();
  const { organizationId, id: keyId } = context.caller.key;
  try {
    return await uploads.run(
      organizationId,
      (upload) => readForm(request, formReceiver(upload), { ...limits, ...receiving }),
      {
        ...{ leastBytes, keyId },
        // The rights of the key may have changed since the first byte.
        admitAgain: async () => void (await context.admitAgain()),
      },
    );
  } finally {
    closeWhenIdle();
  }
}

function formReceiver(upload: FileUpload) {
  return {
    field(name: string, value: string): void {
      if (name === "purpose") upload.setPurpose(value);
      else if (!upload.takeExpiry(name, value))
        throw unexpected(name, name === "file" ? "must be a file, with a filename" : "is unknown");
    },
    async file(name: string, heading: { filename: string; contentType: string }) {
      if (name !== "file") {
        throw unexpected(name, name === "purpose" ? "must not be a file" : "is unknown");
      }
      await upload.begin(heading);
      return upload;
    },
  };
}

function unexpected(name: string, what: string): GatewayError {
  const param = name.slice(0, 100);
  return new GatewayError("invalid_body", `The form's part "${param}" ${what}.`, { param });
}

const ANY_BYTES = "application/octet-stream";
/** JSON Lines has no registered media type, and several are in use. */
const LINES = ["application/x-ndjson", "application/jsonlines", "text/plain"];

function contentResponse(
  context: RequestContext,
  files: FileLibrary,
  file: FileRecord,
): Promise<Response> {
  const isLines = file.contentType === "application/jsonl";
  return downloadResponse(context, {
    filename: file.filename,
    // The body is empty while the content is still being made (spec 3.2).
    bytes: file.storageKey === null ? 0 : file.bytes,
    contentTypes: [file.contentType, ANY_BYTES, ...(isLines ? LINES : [])],
    etag: file.sha256 === null ? undefined : `"${file.sha256}"`,
    open: (range) => files.read(file, range),
  });
}

/**
 * Returns an address from which the content can be downloaded for an hour without a key. Throws 400 if the
 * request names no host.
 */
export async function downloadUrlShape(
  request: Request,
  files: FileLibrary,
  file: FileRecord,
  publicBase: string | undefined,
) {
  const download = await files.downloadAddress(file, {
    contentType: file.contentType,
    contentDisposition: attachment(file.filename),
  });
  const shape = { id: file.id, object: "file.download_url" };
  if (download.kind === "store")
    return { ...shape, url: download.url, expires_at: download.expires };
  const { expires, signature } = download.proof;
  const path = `/v1/files/${file.id}/download?expires=${expires}&signature=${signature}`;
  return { ...shape, url: publicUrl(path, request, publicBase), expires_at: expires };
}

/** Returns the file object of spec 2.2. */
function fileShape(file: FileRecord) {
  return {
    id: file.id,
    object: "file",
    bytes: file.bytes,
    filename: file.filename,
    purpose: file.purpose,
    created_at: unixSeconds(file.createdAtMs),
    expires_at: file.expiresAtMs === null ? null : unixSeconds(file.expiresAtMs),
    status: file.status,
    status_details: file.statusDetails,
  };
}

function unixSeconds(ms: number): number {
  return Math.floor(ms / 1_000);
}
