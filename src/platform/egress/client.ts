import type { CheckedTarget, EgressGuard } from "./guard.ts";

export interface EgressRequest {
  readonly method: "POST";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** For everything: the name, the connection, and the head of the answer. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** Sends to a URL that a user supplied. Resolves with the answer's status, whatever it is. */
export type EgressSend = (request: EgressRequest) => Promise<{ readonly status: number }>;

export interface EgressClientOptions {
  readonly guard: EgressGuard;
  /** Certificates to trust in place of the system's, PEM. */
  readonly certificateAuthorities?: readonly string[];
}

/** More of an answer than this is not read. */
export const MAX_RESPONSE_BYTES = 65_536;
/** The status is what counts: how long the rest of an answer is waited for, so that its connection can be used again. */
const MAX_REST_MS = 1_000;

/** Of a name that has more, these are tried. */
export const MAX_ADDRESSES = 4;
/** Failures of an address that has not been sent anything. */
const UNREACHED = new Set<unknown>([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "EADDRNOTAVAIL",
]);

/**
 * The one way to the addresses of users. Dials addresses that were checked and nothing else: no
 * redirect is followed, nothing is decompressed, and no more than 64 KB of an answer is read. Throws
 * EgressRefused, NameNotResolved, a TimeoutError, or what the connection failed with.
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

/** Sends to a checked address: no redirect is followed, nothing is decompressed. */
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

/** By the first address that can be reached: of several, such as one of each family, some often cannot. */
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

/** The checked address in place of the name, so that the name is not resolved again. */
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
    // The answer's head was whole, and its status stands.
  } finally {
    clearTimeout(timer);
  }
}

/** A resolver cannot be called off, but it need not be waited for. */
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
