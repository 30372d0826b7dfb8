import { attachment } from "../http/content-disposition.ts";
import { downloadResponse } from "../http/download.ts";
import { publicUrl } from "../http/public-url.ts";
import type { RequestContext } from "../http/route.ts";
import type { FileRecord } from "../lib/file-record.ts";
import type { FileLibrary } from "./file-library.ts";

const ANY_BYTES = "application/octet-stream";
/** JSON Lines have no registered type, and several in use. */
const LINES = ["application/x-ndjson", "application/jsonlines", "text/plain"];

export function contentResponse(
  context: RequestContext,
  files: FileLibrary,
  file: FileRecord,
): Promise<Response> {
  const isLines = file.contentType === "application/jsonl";
  return downloadResponse(context, {
    filename: file.filename,
    // Still being made: an empty body (spec 3.2).
    bytes: file.storageKey === null ? 0 : file.bytes,
    contentTypes: [file.contentType, ANY_BYTES, ...(isLines ? LINES : [])],
    etag: file.sha256 === null ? undefined : `"${file.sha256}"`,
    open: (range) => files.read(file, range),
  });
}

/** Where the content can be fetched for an hour without a key. Throws 400 where the request names no host. */
export async function downloadUrlShape(
  request: Request,
  files: FileLibrary,
  file: FileRecord,
  publicBase: string | undefined,
) {
  const place = await files.place(file, {
    contentType: file.contentType,
    contentDisposition: attachment(file.filename),
  });
  const shape = { id: file.id, object: "file.download_url" };
  if (place.kind === "store") return { ...shape, url: place.url, expires_at: place.expires };
  const { expires, signature } = place.proof;
  const path = `/v1/files/${file.id}/download?expires=${expires}&signature=${signature}`;
  return { ...shape, url: publicUrl(path, request, publicBase), expires_at: expires };
}
