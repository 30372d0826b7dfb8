import { type EgressClientOptions, fetchTarget, timeoutError, unlessAborted } from "./client.ts";

export interface EgressDownload {
  readonly maxBytes: number;
  /** Milliseconds for everything, including redirects and the body. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
  /** Checks the headers of the answer before its bytes are read. Throws to reject the answer. */
  inspect?(headers: Headers): void;
}

/** The request headers, unless the caller states other ones. Nothing is decompressed. */
const ANY_FILE = { accept: "*/*", "accept-encoding": "identity" };

/** Redirects that are followed. The address of a provider's file often leads to another one. */
const MAX_REDIRECTS = 3;
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** Thrown if an address answered, but not with the bytes. */
export class DownloadFailed extends Error {
  constructor(message: string) {
    super(message);
    this.name = "DownloadFailed";
  }
}

/**
 * Returns the function that downloads from an address of another system. It checks each redirect
 * like the first address. It throws DownloadFailed, EgressRefused, NameNotResolved, a TimeoutError,
 * the signal's reason, or the error of the connection.
 */
export function createEgressDownload({ guard, certificateAuthorities }: EgressClientOptions) {
  return async (url: string, download: EgressDownload): Promise<Buffer> => {
    const { timeoutMs, signal } = download;
    const headers = { ...ANY_FILE, ...download.headers };
    const timeout = new AbortController();
    const timer = setTimeout(() => timeout.abort(timeoutError()), timeoutMs);
    const either = AbortSignal.any([timeout.signal, signal]);
    try {
      let address = url;
      for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
        const target = await unlessAborted(guard.check(address), either);
        const request = { method: "GET", headers, signal: either } as const;
        const response = await fetchTarget(target, request, certificateAuthorities);
        const location = REDIRECTS.has(response.status) && response.headers.get("location");
        if (!location) return await bytesOf(response, download);
        await response.body?.cancel();
        address = URL.parse(location, target.url)?.href ?? "";
      }
      throw new DownloadFailed("it redirects too often");
    } finally {
      clearTimeout(timer);
    }
  };
}

async function bytesOf(response: Response, download: EgressDownload): Promise<Buffer> {
  const { status, headers, body } = response;
  const { maxBytes } = download;
  const length = Number(headers.get("content-length") ?? 0);
  if (status !== 200 || body === null || headers.get("content-encoding") || length > maxBytes) {
    await body?.cancel();
    throw new DownloadFailed(
      status === 200 ? "it is empty, encoded or too long" : `it answers with status ${status}`,
    );
  }
  try {
    download.inspect?.(headers);
  } catch (error) {
    await body.cancel();
    throw error;
  }
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body as ReadableStream<Uint8Array> & AsyncIterable<Uint8Array>) {
    bytes += piece.byteLength;
    // Ends the loop, which cancels the body.
    if (bytes > maxBytes) throw new DownloadFailed("it is too long");
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}
