import { HttpError } from "./http-error.ts";

const FORMATS: Readonly<Record<string, "gzip" | "deflate" | "brotli" | "zstd">> = {
  gzip: "gzip",
  "x-gzip": "gzip",
  deflate: "deflate",
  br: "brotli",
  zstd: "zstd",
};

/**
 * The expanded body of a server that encodes it although it was asked not to; undefined where nothing
 * is encoded. Throws HttpError for an unknown encoding.
 */
export function decoderOf(
  contentEncoding: string | null,
): ((body: ReadableStream<Uint8Array>) => ReadableStream<Uint8Array>) | undefined {
  if (contentEncoding === null) return undefined;
  const name = contentEncoding.toLowerCase();
  if (name === "" || name === "identity") return undefined;
  const format = FORMATS[name];
  if (format === undefined) {
    throw new HttpError("UNKNOWN_ENCODING", "the response has an unknown content encoding");
  }
  return (body) =>
    body.pipeThrough<Uint8Array>(
      new DecompressionStream(format as CompressionFormat) as ReadableWritablePair<
        Uint8Array,
        Uint8Array
      >,
    );
}
