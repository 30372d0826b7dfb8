/** A search backend that answers as a test says, and pages of the web that it finds; both on 127.0.0.1. */
export interface SearchUpstream {
  readonly url: string;
  /** Requests to the backend, in order. */
  readonly searches: RecordedSearch[];
  /** Paths of pages that were asked for. */
  readonly pagesRead: string[];
  answer: (request: Request) => Response | Promise<Response>;
  page: (path: string) => Response | Promise<Response>;
  stop(): Promise<void>;
}

export interface RecordedSearch {
  readonly method: string;
  readonly path: string;
  readonly query: Record<string, string>;
  readonly headers: Record<string, string>;
  readonly body: unknown;
}

export function startSearchUpstream(): SearchUpstream {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const url = new URL(request.url);
      if (url.pathname.startsWith("/pages/")) {
        upstream.pagesRead.push(url.pathname);
        return upstream.page(url.pathname);
      }
      const text = await request.text();
      upstream.searches.push({
        method: request.method,
        path: url.pathname,
        query: Object.fromEntries(url.searchParams),
        headers: Object.fromEntries(request.headers),
        body: text === "" ? null : JSON.parse(text),
      });
      return upstream.answer(request);
    },
  });
  const upstream: SearchUpstream = {
    url: `http://127.0.0.1:${server.port}`,
    searches: [],
    pagesRead: [],
    answer: () => Response.json({ results: [] }),
    page: (path) => htmlPage(`The page ${path}`),
    stop: () => server.stop(true),
  };
  return upstream;
}

/** A page whose text is long enough to stand for itself. */
export function htmlPage(text: string): Response {
  const filler = "This sentence gives the page the length that a page has. ".repeat(6);
  return new Response(
    `<!doctype html><html><head><title>T</title></head><body><nav>Menu</nav><main><h1>${text}</h1><p>${filler}</p></main><footer>Imprint</footer></body></html>`,
    { headers: { "content-type": "text/html; charset=utf-8" } },
  );
}
