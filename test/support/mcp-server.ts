import {
  createMcpHandler,
  fromJsonSchema,
  type JSONRPCMessage,
  McpServer,
  type Transport,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";

/** A real MCP server of the official library, by each of the transports that remote servers have. */
export interface TestMcpServer {
  readonly port: number;
  /** Of all requests: method, path and authorization. */
  readonly asked: { method: string; path: string; authorization: string | null }[];
  /** Calls of its tools, by their names. */
  readonly called: string[];
  stop(): Promise<void>;
}

/** Paths: `/mcp` of today's protocol, `/session` of the one before with sessions, `/sse` of the first transport. */
export function startMcpServer(
  more: (path: string, request: Request) => Response | Promise<Response> | undefined = () =>
    undefined,
): TestMcpServer {
  const asked: TestMcpServer["asked"] = [];
  const called: string[] = [];
  const make = () => offering(called);
  const handler = createMcpHandler(make);
  const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();
  const streams = new Map<string, OlderTransport>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 0,
    async fetch(request) {
      const { pathname: path, searchParams } = new URL(request.url);
      asked.push({
        method: request.method,
        path,
        authorization: request.headers.get("authorization"),
      });
      const own = more(path, request);
      if (own !== undefined) return own;
      if (path === "/session") {
        const id = request.headers.get("mcp-session-id");
        const known = id === null ? undefined : sessions.get(id);
        if (known !== undefined) return known.handleRequest(request);
        const transport = new WebStandardStreamableHTTPServerTransport({
          sessionIdGenerator: () => crypto.randomUUID(),
          onsessioninitialized: (name) => void sessions.set(name, transport),
          onsessionclosed: (name) => void sessions.delete(name),
        });
        await make().connect(transport);
        return transport.handleRequest(request);
      }
      if (path === "/sse") {
        if (request.method !== "GET") return new Response(null, { status: 405 });
        const name = crypto.randomUUID();
        const transport = new OlderTransport(`/messages?session=${name}`);
        streams.set(name, transport);
        await make().connect(transport);
        return transport.response;
      }
      if (path === "/messages") {
        streams
          .get(searchParams.get("session") ?? "")
          ?.take((await request.json()) as JSONRPCMessage);
        return new Response("Accepted", { status: 202 });
      }
      return handler.fetch(request);
    },
  });
  return {
    port: server.port!,
    asked,
    called,
    stop: () => server.stop(true),
  };
}

const text = (value: string) => [{ type: "text" as const, text: value }];

function offering(called: string[]): McpServer {
  const server = new McpServer({ name: "test", version: "1.0.0" });
  const numbers = fromJsonSchema<{ a: number; b: number }>({
    type: "object",
    properties: { a: { type: "number" }, b: { type: "number" } },
    required: ["a", "b"],
  });
  server.registerTool(
    "add",
    { description: "Adds two numbers.", inputSchema: numbers, annotations: { readOnlyHint: true } },
    async ({ a, b }) => {
      called.push("add");
      return { content: text(String(a + b)) };
    },
  );
  server.registerTool("delete.all", { description: "Deletes everything." }, async () => {
    called.push("delete.all");
    return { content: text("gone") };
  });
  server.registerTool("draw", { description: "Draws." }, async () => ({
    content: [
      ...text("drawn"),
      { type: "image", data: "aGVsbG8=", mimeType: "image/png" },
      { type: "image", data: "PHN2Zy8+", mimeType: "image/svg+xml" },
    ],
  }));
  server.registerTool("fail", { description: "Fails." }, async () => ({
    content: text("it is broken"),
    isError: true,
  }));
  server.registerTool(
    "echo_headers",
    { description: "Repeats its authorization." },
    async (context) => ({
      content: text(
        `sent: ${context.http?.req?.headers.get("authorization") ?? "secret-token-1234"}`,
      ),
    }),
  );
  server.registerTool("wait", { description: "Never ends." }, () => new Promise<never>(() => {}));
  server.registerTool("babble", { description: "Says much." }, async () => {
    return { content: text("much ".repeat(400_000)) };
  });
  return server;
}

/** The transport of 2024: an event stream, whose first event names where messages are posted. */
class OlderTransport implements Transport {
  onmessage?: (message: JSONRPCMessage) => void;
  onclose?: () => void;
  readonly response: Response;
  #controller!: ReadableStreamDefaultController<Uint8Array>;

  constructor(endpoint: string) {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#controller = controller;
        this.#write("endpoint", endpoint);
      },
      cancel: () => this.onclose?.(),
    });
    this.response = new Response(body, { headers: { "content-type": "text/event-stream" } });
  }

  async start(): Promise<void> {}

  async send(message: JSONRPCMessage): Promise<void> {
    this.#write("message", JSON.stringify(message));
  }

  async close(): Promise<void> {
    this.onclose?.();
  }

  take(message: JSONRPCMessage): void {
    this.onmessage?.(message);
  }

  #write(event: string, data: string): void {
    this.#controller.enqueue(new TextEncoder().encode(`event: ${event}\ndata: ${data}\n\n`));
  }
}
