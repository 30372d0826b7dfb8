import type { CheckedTarget, EgressGuard } from "./guard.ts";

export interface EgressRequest {
  readonly method: "POST";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Milliseconds for everything: the name, the connection, and the head of the answer. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/**
 * Sends a request to a URL that a user supplied. Resolves with the status of the answer, whatever
 * it is.
 */
export type EgressSend = (request: EgressRequest) => Promise<{ readonly status: number }>;

export interface EgressClientOptions {
  readonly guard: EgressGuard;
  /** Certificates to trust instead of the system's, PEM. */
  readonly certificateAuthorities?: readonly string[];
}

/** The maximum number of bytes of an answer that are read. */
export const MAX_RESPONSE_BYTES = 65_536;
/**
 * Milliseconds to wait for the rest of an answer. Only the status matters, but a connection can be
 * reused if its answer was read completely.
 */
const MAX_REST_MS = 1_000;

/** The maximum number of a name's addresses that are tried. */
export const MAX_ADDRESSES = 4;
/** Errors of an address to which nothing was sent. */
const UNREACHED = new Set<unknown>([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EADDRNOTAVAIL",
]);

/**
 * Returns the function that sends requests to addresses of users. It connects to checked addresses
 * only, follows no redirect, decompresses nothing, and reads at most 64 KB of an answer. It throws
 * EgressRefused, NameNotResolved, a TimeoutError, or the error of the connection.
 */
export function createEgressSend({
  guard,
  certificateAuthorities,
}: EgressClientOptions): EgressSend {
  return async (request) => {
    const timeout = new AbortController();
    const timer = setTimeout(() => timeout.abort(timeoutError()), request.timeoutMs);
    const signal =
      request.signal === undefined
        ? timeout.signal
        : AbortSignal.any([timeout.signal, request.signal]);
    try {
      const target = await unlessAborted(guard.check(request.url), signal);
      const { method, headers, body } = request;
      const response = await fetchTarget(
        target,
        { method, headers, body, signal },
        certificateAuthorities,
      );
      await discard(response);
      return { status: response.status };
    } finally {
      clearTimeout(timer);
    }
  };
}

interface TargetRequest {
  readonly method: "GET" | "POST" | "DELETE";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal: AbortSignal;
}

/** Sends a request to a checked address. Follows no redirect and decompresses nothing. */
export function fetchTarget(
  target: CheckedTarget,
  { method, headers, body, signal }: TargetRequest,
  certificateAuthorities: readonly string[] | undefined,
): Promise<Response> {
  return fetchFirst(target, {
    method,
    headers: { ...headers, host: target.url.host },
    ...(body !== undefined && { body }),
    redirect: "manual",
    decompress: false,
    signal,
    tls: {
      serverName: target.hostName,
      ...(certificateAuthorities && { ca: [...certificateAuthorities] }),
    },
  });
}

/**
 * Sends the request to the first address that can be reached. If a name has several, such as one of
 * each family, some often cannot be reached.
 */
async function fetchFirst(target: CheckedTarget, init: BunFetchRequestInit): Promise<Response> {
  const [first, ...others] = target.addresses.slice(0, MAX_ADDRESSES);
  let address = first!;
  for (;;) {
    try {
      return await fetch(pinnedUrl(target.url, address), init);
    } catch (error) {
      const next = others.shift();
      if (next === undefined || !UNREACHED.has((error as { code?: unknown }).code)) throw error;
      address = next;
    }
  }
}

/**
 * Returns the URL with the checked address instead of the name, so that the name is not resolved
 * again.
 */
function pinnedUrl(url: URL, address: string): string {
  const host = address.includes(":") ? `[${address}]` : address;
  const port = url.port === "" ? "" : `:${url.port}`;
  return `${url.protocol}//${host}${port}${url.pathname}${url.search}`;
}

async function discard(response: Response): Promise<void> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  const timer = setTimeout(() => void reader.cancel().catch(() => {}), MAX_REST_MS);
  try {
    let readBytes = 0;
    while (readBytes <= MAX_RESPONSE_BYTES) {
      const { done, value } = await reader.read();
      if (done) return;
      readBytes += value.byteLength;
    }
    await reader.cancel();
  } catch {
    // The head of the answer was complete, so its status is valid.
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Settles as the promise does, or rejects when the signal aborts. A name resolution cannot be
 * cancelled, but the caller need not wait for it.
 */
export function unlessAborted<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const stop = () => reject(signal.reason);
    signal.addEventListener("abort", stop);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

export function timeoutError(): DOMException {
  return new DOMException("no answer came in time", "TimeoutError");
}
