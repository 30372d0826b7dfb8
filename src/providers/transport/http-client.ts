import { type Clock, systemClock } from "../../lib/clock.ts";
import type { OutboundProxies } from "../../platform/config/outbound-proxies.ts";
import { ConnectionPool, type PoolDependencies } from "./connection-pool.ts";
import { type Connect, type DialTarget, TrustedAuthorities } from "./dial.ts";
import { cancelUnread, Exchange } from "./exchange.ts";
import type { HttpClient, ProviderRequest, ResponseReceiver } from "./provider-response.ts";
import { prepareHead, type RequestHead } from "./request-head.ts";

export interface HttpClientOptions {
  readonly clock?: Clock;
  readonly connect?: Connect;
  /** Absent: no proxies. */
  readonly proxies?: OutboundProxies;
  /** Certificates in PEM, trusted instead of the machine's. */
  readonly authorities?: readonly string[];
  /** Schedules work that does not keep the process alive. */
  readonly afterInBackground?: Clock["after"];
}

const NO_PROXIES: OutboundProxies = { http: undefined, https: undefined, exempt: [] };

/**
 * Creates the HTTP/1.1 client for all calls to providers, `http:` and `https:`. It uses sockets of this thread. `fetch`
 * has no connect timeout, and passes every call to another thread and back, which costs as much as the rest of a call.
 * The client follows no redirects and has no timeout except for connecting.
 */
export function createHttpClient(options: HttpClientOptions = {}): HttpClient {
  return new SocketClient(
    {
      clock: options.clock ?? systemClock,
      connect: options.connect ?? (async (connection) => Bun.connect(connection)),
      authorities: new TrustedAuthorities(options.authorities),
      afterInBackground: options.afterInBackground ?? afterUnreferenced,
      idle: { connections: 0 },
    },
    options.proxies ?? NO_PROXIES,
  );
}

interface Target {
  readonly head: RequestHead;
  readonly method: string;
  readonly pool: ConnectionPool;
}

class SocketClient implements HttpClient {
  readonly #dependencies: PoolDependencies;
  readonly #proxies: OutboundProxies;
  /** Connection pools by origin. The configuration bounds their number. */
  readonly #pools = new Map<string, ConnectionPool>();
  readonly #targets = new WeakMap<object, Target>();

  constructor(dependencies: PoolDependencies, proxies: OutboundProxies) {
    this.#dependencies = dependencies;
    this.#proxies = proxies;
  }

  send(url: string, request: ProviderRequest, receiver: ResponseReceiver): void {
    if (request.signal.aborted) {
      if (request.body instanceof ReadableStream) cancelUnread(request.body);
      receiver.failed(request.signal.reason);
      return;
    }
    const { head, pool } = this.#targetOf(url, request);
    const { traceparent } = request.signal;
    const fields = traceparent === undefined ? "" : `traceparent: ${traceparent}\r\n`;
    pool.dispatch(new Exchange(head.text + fields + framedBody(request), request, receiver));
  }

  #targetOf(url: string, request: ProviderRequest): Target {
    const cached = this.#targets.get(request.headers);
    if (cached !== undefined && cached.head.url === url && cached.method === request.method) {
      return cached;
    }
    const { proxy } = request;
    const proxies = proxy === undefined ? this.#proxies : { http: proxy, https: proxy, exempt: [] };
    const head = prepareHead(request.method, url, request.headers, proxies);
    const target = { head, method: request.method, pool: this.#poolOf(head.target) };
    this.#targets.set(request.headers, target);
    return target;
  }

  #poolOf(target: DialTarget): ConnectionPool {
    const { hostname, port, isSecure, proxy } = target;
    const way =
      proxy === undefined ? "" : `${proxy.hostname} ${proxy.port} ${proxy.authorization ?? ""}`;
    const key = `${isSecure ? "https" : "http"} ${hostname} ${port} ${way}`;
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      pool = new ConnectionPool(this.#dependencies, target);
      this.#pools.set(key, pool);
    }
    return pool;
  }
}

/** Returns the end of a request: the fields that frame the body, and the body if it is text. */
function framedBody({ body, bodyBytes, method }: ProviderRequest): string {
  if (body instanceof ReadableStream) {
    const isKnown = bodyBytes !== undefined;
    return `${isKnown ? `content-length: ${bodyBytes}` : "transfer-encoding: chunked"}\r\n\r\n`;
  }
  if (typeof body !== "string") return `content-length: ${body.byteLength}\r\n\r\n`;
  // Some servers reject these methods with a body, even an empty one.
  if (body === "" && BODILESS_METHODS.has(method)) return "\r\n";
  return `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

const BODILESS_METHODS: ReadonlySet<string> = new Set(["GET", "HEAD", "DELETE"]);

const afterUnreferenced: Clock["after"] = (delayMs, run) => {
  const timer = setTimeout(run, delayMs);
  timer.unref();
  return () => clearTimeout(timer);
};
