import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { bodyInPieces } from "../lib/body-pieces.ts";
import { acceptedCoding } from "./request-headers.ts";

/** Content codings, preferred first. */
const CODINGS = ["br", "zstd", "gzip"] as const;
type Coding = (typeof CODINGS)[number];
/** Brotli's default quality would take seconds. */
const BROTLI_QUALITY = 6;

const compress: Readonly<Record<Coding, (bytes: Uint8Array) => Promise<Uint8Array>>> = {
  br: (bytes) =>
    promisify(brotliCompress)(bytes, {
      params: { [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY },
    }),
  zstd: (bytes) => Bun.zstdCompress(bytes),
  gzip: (bytes) => promisify(gzip)(bytes),
};

interface FileSource {
  readonly contentType: string;
  /** Differs whenever the content differs. */
  readonly version: string;
  readonly cacheControl: string;
  bytes(): Promise<Uint8Array> | Uint8Array;
  /** Returns the body for clients that accept no coding. */
  plain(): BodyInit;
}

/**
 * A file in the codings that browsers accept. Each compressed form is made once, outside the event
 * loop, and cached.
 */
export class CompressedFile {
  readonly #source: FileSource;
  readonly #compressed = new Map<Coding, Promise<Uint8Array>>();

  constructor(source: FileSource) {
    this.#source = source;
  }

  async answer(
    request: Request,
    cacheControl: string = this.#source.cacheControl,
  ): Promise<Response> {
    const { contentType, version, plain } = this.#source;
    const coding = acceptedCoding(request.headers.get("accept-encoding"), CODINGS);
    const etag = `"${version}${coding === undefined ? "" : `-${coding}`}"`;
    const headers: Record<string, string> = {
      "content-type": contentType,
      "cache-control": cacheControl,
      "x-content-type-options": "nosniff",
      vary: "accept-encoding",
      etag,
    };
    if (namesTag(request.headers.get("if-none-match"), etag)) {
      return new Response(null, { status: 304, headers });
    }
    if (coding === undefined) return new Response(plain(), { headers });
    headers["content-encoding"] = coding;
    return new Response(bodyInPieces(await this.#compressedBytes(coding)), { headers });
  }

  /** Compresses the file for browsers before the first request. */
  async prepare(): Promise<void> {
    await this.#compressedBytes("br");
  }

  #compressedBytes(coding: Coding): Promise<Uint8Array> {
    const bytes = this.#compressed.get(coding) ?? this.#compress(coding);
    this.#compressed.set(coding, bytes);
    return bytes;
  }

  async #compress(coding: Coding): Promise<Uint8Array> {
    try {
      return await compress[coding](await this.#source.bytes());
    } catch (error) {
      this.#compressed.delete(coding);
      throw error;
    }
  }
}

/** Returns true if an If-None-Match header names the tag (RFC 9110, section 13.1.2). */
function namesTag(header: string | null, etag: string): boolean {
  if (header === null) return false;
  return header.split(",").some((tag) => tag.trim().replace(/^W\//, "") === etag);
}
