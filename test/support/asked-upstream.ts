/** What every request to a provider has. */
export interface AskedOf {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly headers: Headers;
}

/** A server that keeps what it was asked and answers as a test says. */
export interface AskedUpstream<Asked> {
  readonly origin: string;
  readonly asked: Asked[];
  answer: (asked: Asked) => Response | Promise<Response>;
  stop(): Promise<void>;
}

/** @param read what a test is to see of a request besides its heading */
export function startAskedUpstream<Read extends object>(
  read: (request: Request) => Promise<Read>,
): AskedUpstream<AskedOf & Read> {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const { pathname, search } = new URL(request.url);
      const { method, headers } = request;
      const one = { method, path: pathname + search, headers, ...(await read(request)) };
      upstream.asked.push(one);
      return upstream.answer(one);
    },
  });
  const upstream: AskedUpstream<AskedOf & Read> = {
    origin: `http://127.0.0.1:${server.port}`,
    asked: [],
    answer: () => new Response("nothing to say", { status: 500 }),
    stop: () => server.stop(true),
  };
  return upstream;
}
