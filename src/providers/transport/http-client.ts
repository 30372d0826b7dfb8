import { type Clock, systemClock } from "../../lib/clock.ts";
import type { Connect } from "./connection.ts";
import { ConnectionPool, type PoolDependencies } from "./connection-pool.ts";
import { Exchange } from "./exchange.ts";
import type { HttpClient, ProviderRequest, ResponseReceiver } from "./provider-response.ts";
import { prepareHead, type RequestHead } from "./request-head.ts";

export interface HttpClientOptions {
  readonly clock?: Clock;
  readonly connect?: Connect;
  /** Schedules what need not keep the process alive. */
  readonly afterInBackground?: Clock["after"];
}

/**
 * An HTTP/1.1 client for plain `http:` addresses, on the sockets of this thread: `fetch` hands every
 * call to another thread and back, which costs more than the rest of a call to a local provider does.
 * It follows no redirects, knows no proxies, and times out only connecting.
 */
export function createHttpClient(options: HttpClientOptions = {}): HttpClient {
  return new SocketClient({
    clock: options.clock ?? systemClock,
    connect: options.connect ?? (async (connection) => Bun.connect(connection)),
    afterInBackground: options.afterInBackground ?? afterUnheld,
  });
}

interface Target {
  readonly head: RequestHead;
  readonly method: string;
  readonly pool: ConnectionPool;
}

class SocketClient implements HttpClient {
  readonly #dependencies: PoolDependencies;
  /** One for each origin: as many as the configuration names. */
  readonly #pools = new Map<string, ConnectionPool>();
  readonly #targets = new WeakMap<object, Target>();

  constructor(dependencies: PoolDependencies) {
    this.#dependencies = dependencies;
  }

  send(url: string, request: ProviderRequest, receiver: ResponseReceiver): void {
    if (request.signal.aborted) {
      receiver.failed(request.signal.reason);
      return;
    }
    const { head, pool } = this.#targetOf(url, request);
    const length = Buffer.byteLength(request.body);
    const text = `${head.text}${length}\r\n\r\n${request.body}`;
    pool.dispatch(new Exchange(text, request, receiver));
  }

  #targetOf(url: string, request: ProviderRequest): Target {
    const known = this.#targets.get(request.headers);
    if (known !== undefined && known.head.url === url && known.method === request.method) {
      return known;
    }
    const head = prepareHead(request.method, url, request.headers);
    const target = { head, method: request.method, pool: this.#poolOf(head) };
    this.#targets.set(request.headers, target);
    return target;
  }

  #poolOf({ hostname, port }: RequestHead): ConnectionPool {
    const origin = `${hostname} ${port}`;
    let pool = this.#pools.get(origin);
    if (pool === undefined) {
      pool = new ConnectionPool(this.#dependencies, hostname, port);
      this.#pools.set(origin, pool);
    }
    return pool;
  }
}

const afterUnheld: Clock["after"] = (delayMs, run) => {
  const timer = setTimeout(run, delayMs);
  timer.unref();
  return () => clearTimeout(timer);
};
