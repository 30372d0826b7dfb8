import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";
import { bodyInPieces } from "../lib/body-pieces.ts";
import { acceptedCoding } from "./request-headers.ts";

/** Best first; brotli's default effort would take seconds. */
const CODINGS = ["br", "zstd", "gzip"] as const;
type Coding = (typeof CODINGS)[number];
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
  /** Changes with the content. */
  readonly version: string;
  readonly cacheControl: string;
  bytes(): Promise<Uint8Array> | Uint8Array;
  /** The body for clients that take no coding. */
  plain(): BodyInit;
}

/** A file as a browser takes it; each compressed form is made once, off the event loop, and kept in memory. */
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
    if (isKnown(request.headers.get("if-none-match"), etag)) {
      return new Response(null, { status: 304, headers });
    }
    if (coding === undefined) return new Response(plain(), { headers });
    headers["content-encoding"] = coding;
    return new Response(bodyInPieces(await this.#made(coding)), { headers });
  }

  /** Makes the form that browsers ask for before one does. */
  async prepare(): Promise<void> {
    await this.#made("br");
  }

  #made(coding: Coding): Promise<Uint8Array> {
    const made = this.#compressed.get(coding) ?? this.#make(coding);
    this.#compressed.set(coding, made);
    return made;
  }

  async #make(coding: Coding): Promise<Uint8Array> {
    try {
      return await compress[coding](await this.#source.bytes());
    } catch (error) {
      this.#compressed.delete(coding);
      throw error;
    }
  }
}

/** Whether an If-None-Match header names the tag (RFC 9110, section 13.1.2). */
function isKnown(header: string | null, etag: string): boolean {
  if (header === null) return false;
  return header.split(",").some((one) => one.trim().replace(/^W\//, "") === etag);
}
