import { HttpError, malformed } from "./http-error.ts";
import { decimal, type ResponseHead } from "./response-head.ts";

/** How the end of a body is found (RFC 9112, section 6.3), and what becomes of the connection then. */
export interface BodyFraming {
  readonly kind: "none" | "chunked" | "length" | "close";
  /** Bytes of a body of kind `length`. */
  readonly lengthBytes: number;
  readonly isReusable: boolean;
}

/** Throws HttpError where the end cannot be known for certain. */
export function framingOf(head: ResponseHead, method: string): BodyFraming {
  const isKeptAlive = keepsAlive(head);
  if (method === "HEAD" || head.status === 204 || head.status === 304) {
    return { kind: "none", lengthBytes: 0, isReusable: isKeptAlive };
  }
  const transferEncoding = head.get("transfer-encoding");
  const contentLength = head.get("content-length");
  if (transferEncoding !== null) {
    if (transferEncoding.toLowerCase() !== "chunked") {
      throw new HttpError("UNKNOWN_ENCODING", "the response has an unknown transfer encoding");
    }
    // A server that says both, or says it in HTTP/1.0, may be read in two ways by what is between.
    const isUnambiguous = contentLength === null && !head.isHttp10;
    return { kind: "chunked", lengthBytes: 0, isReusable: isKeptAlive && isUnambiguous };
  }
  if (contentLength === null) return { kind: "close", lengthBytes: 0, isReusable: false };
  return { kind: "length", lengthBytes: lengthOf(contentLength), isReusable: isKeptAlive };
}

function lengthOf(contentLength: string): number {
  const once = decimal(contentLength);
  if (once !== undefined) return once;
  const [first = "", ...others] = contentLength.split(",").map((one) => one.trim());
  const length = decimal(first);
  if (length === undefined || others.some((one) => one !== first)) {
    throw malformed("a content-length that is none");
  }
  return length;
}

function keepsAlive(head: ResponseHead): boolean {
  const connection = head.get("connection");
  if (connection === null) return !head.isHttp10;
  const options = connection
    .toLowerCase()
    .split(",")
    .map((one) => one.trim());
  if (options.includes("close")) return false;
  return !head.isHttp10 || options.includes("keep-alive");
}
