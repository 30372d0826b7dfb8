import { GatewayError } from "../lib/errors.ts";
import { acceptedType } from "./request-headers.ts";
import type { RequestContext } from "./route.ts";

interface Download {
  readonly filename: string;
  readonly bytes: number;
  /** True if a browser may display the content instead of saving it. */
  readonly isShown?: boolean;
  /** Content types that describe the content, the default first. */
  readonly contentTypes: readonly string[];
  /** A strong entity tag with its quotes. Undefined if there is no content yet. */
  readonly etag: string | undefined;
  open(range: {
    readonly start: number;
    readonly end: number;
  }): Promise<ReadableStream<Uint8Array>>;
}

/**
 * Bodies up to this size are buffered, so that they have a Content-Length. Longer bodies are sent
 * in chunks.
 */
const MAX_BUFFERED_BYTES = 1024 * 1024;

/**
 * Returns bytes that a caller uploaded, with support for ranges and conditions (RFC 9110, sections
 * 13 and 14). The headers keep browsers from treating the content as a page of the gateway. Throws
 * 412, 416.
 */
export async function downloadResponse(
  context: RequestContext,
  download: Download,
): Promise<Response> {
  const { request, lifetime } = context;
  const { etag, bytes } = download;
  const headers: Record<string, string> = {
    "content-type": acceptedType(request.headers.get("accept"), download.contentTypes),
    "content-disposition": disposition(download),
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, no-cache",
    "accept-ranges": "bytes",
    vary: "accept",
    ...(etag !== undefined && { etag }),
  };
  const expected = request.headers.get("if-match");
  if (etag !== undefined && expected !== null && !namesExactly(expected, etag)) {
    throw new GatewayError("precondition_failed", "The content has changed.", {
      param: "if-match",
      headers: { etag },
    });
  }
  if (etag !== undefined && namesEntity(request.headers.get("if-none-match"), etag)) {
    return new Response(null, { status: 304, headers });
  }
  const condition = request.headers.get("if-range");
  const isCurrent = condition === null || condition.trim() === etag;
  const range = readRange(isCurrent ? request.headers.get("range") : null, bytes);
  if (range.kind === "unsatisfiable") {
    throw new GatewayError("range_not_satisfiable", `The content has ${bytes} bytes.`, {
      param: "range",
      headers: { "content-range": `bytes */${bytes}` },
    });
  }
  const part = range.kind === "part" ? range : { start: 0, end: bytes };
  const status = range.kind === "part" ? 206 : 200;
  if (status === 206) headers["content-range"] = `bytes ${part.start}-${part.end - 1}/${bytes}`;
  const length = part.end - part.start;
  headers["content-length"] = String(length);
  const stream = await download.open(part);
  if (length <= MAX_BUFFERED_BYTES) {
    return new Response(await new Response(stream).arrayBuffer(), { status, headers });
  }
  lifetime.isDeferred = true;
  const body = reported(stream, request.signal, () => {
    // The stream can end before the response is returned. The pipeline then must not wait for it.
    lifetime.isDeferred = false;
    lifetime.finish?.();
  });
  return new Response(body, { status, headers });
}

/**
 * Returns the stream. Calls `onOver` once when the stream ends, fails or is cancelled; the request
 * runs until then.
 */
function reported(
  stream: ReadableStream<Uint8Array>,
  signal: AbortSignal,
  onOver: () => void,
): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  let isOver = false;
  const over = (): void => {
    if (isOver) return;
    isOver = true;
    signal.removeEventListener("abort", leave);
    onOver();
  };
  const leave = (): void => {
    void reader.cancel().catch(() => {});
    over();
  };
  signal.addEventListener("abort", leave);
  if (signal.aborted) leave();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { value, done } = await reader.read();
          if (!done) return controller.enqueue(value);
          over();
          controller.close();
        } catch (error) {
          over();
          throw error;
        }
      },
      cancel: leave,
    },
    { highWaterMark: 0 },
  );
}

type ReadRange =
  | { readonly kind: "whole" }
  /** Bytes from `start` (inclusive) to `end` (exclusive). */
  | { readonly kind: "part"; readonly start: number; readonly end: number }
  | { readonly kind: "unsatisfiable" };

const WHOLE: ReadRange = { kind: "whole" };
/**
 * Accepts any number of digits. A value beyond a number's precision, even infinite, lies beyond the
 * end of every content.
 */
const RANGE = /^bytes=\s*(\d*)-(\d*)\s*$/i;

/**
 * Returns the part of the content that a Range header requests (RFC 9110, section 14). Ignores a
 * header that is not a byte range or has several ranges, as the standard allows.
 */
function readRange(header: string | null, bytes: number): ReadRange {
  const match = header === null ? null : RANGE.exec(header);
  if (!match) return WHOLE;
  const [, first = "", last = ""] = match;
  if (first === "" && last === "") return WHOLE;
  if (first === "") {
    const suffixBytes = Math.min(Number(last), bytes);
    return suffixBytes === 0
      ? { kind: "unsatisfiable" }
      : { kind: "part", start: bytes - suffixBytes, end: bytes };
  }
  const start = Number(first);
  if (last !== "" && Number(last) < start) return WHOLE;
  if (start >= bytes) return { kind: "unsatisfiable" };
  const end = last === "" ? bytes : Math.min(Number(last) + 1, bytes);
  return { kind: "part", start, end };
}

/** Returns true if a list of entity tags (If-None-Match) contains this tag by weak comparison. */
function namesEntity(header: string | null, etag: string): boolean {
  return header !== null && namesExactly(header.replaceAll(/(^|,)\s*W\//g, "$1"), etag);
}

/**
 * Returns true if a list of entity tags (If-Match) contains this tag by strong comparison. A weak
 * tag never matches.
 */
function namesExactly(header: string, etag: string): boolean {
  return header.trim() === "*" || header.split(",").some((tag) => tag.trim() === etag);
}

function disposition({ filename, isShown }: Download): string {
  return isShown === true
    ? attachment(filename).replace(/^attachment/, "inline")
    : attachment(filename);
}

/**
 * Returns the Content-Disposition of a download with a name that a caller chose (RFC 6266, RFC
 * 8187). Browsers then save the file instead of displaying it. Old clients get the name in ASCII.
 */
export function attachment(filename: string): string {
  const ascii = filename.replace(/[^\x20-\x7e]|["\\%;]/g, "_");
  const encoded = encodeURIComponent(filename.toWellFormed()).replace(
    /['()*!]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${ascii}"; filename*=UTF-8''${encoded}`;
}
