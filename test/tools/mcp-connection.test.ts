import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import {
  createMcpConnect,
  type McpConnect,
  type McpServer,
} from "../../src/inference/tools/mcp/mcp-connection.ts";
import { createEgressFetch } from "../../src/platform/egress/fetch.ts";
import { EgressGuard } from "../../src/platform/egress/guard.ts";
import { startMcpServer, type TestMcpServer } from "../support/mcp-server.ts";

const SECRET = "secret-token-1234";
const never = new AbortController().signal;
const guard = new EgressGuard({
  // Only the first name may be reached.
  resolve: async (name) => [name === "kept.test" ? "127.0.0.1" : "127.0.0.9"],
  allowedCidrs: ["127.0.0.1/32"],
  allowsHttp: true,
});

let server: TestMcpServer;
let connect: McpConnect;
let odd: (path: string, request: Request) => Response | Promise<Response> | undefined;
const at = (path: string, host = "kept.test"): McpServer => ({
  label: "shop",
  url: `http://${host}:${server.port}${path}`,
  headers: { authorization: `Bearer ${SECRET}` },
});

beforeAll(async () => {
  server = startMcpServer((path, request) => odd(path, request));
  connect = await createMcpConnect(
    (onBroken) => createEgressFetch({ guard }, 1_000_000, onBroken),
    "1.0.0",
  );
});
beforeEach(() => {
  odd = () => undefined;
  server.asked.length = 0;
});
afterAll(() => server.stop());

describe.each(["/mcp", "/session", "/sse"])("a server at %s", (path) => {
  test("lists its tools and runs them, with the authorization in every request", async () => {
    const connection = await connect(at(path), never);
    const tools = await connection.listTools(never);
    expect(tools.map(({ name }) => name)).toContain("add");
    expect(tools.find(({ name }) => name === "add")).toMatchObject({
      description: "Adds two numbers.",
      inputSchema: { required: ["a", "b"] },
      annotations: { readOnlyHint: true },
    });
    const sum = await connection.callTool("add", { a: 1, b: 2 }, never);
    expect(sum).toEqual({ text: "3", images: [], isError: false });
    await connection.close();
    expect(server.asked.length).toBeGreaterThan(2);
    for (const { authorization } of server.asked) expect(authorization).toBe(`Bearer ${SECRET}`);
  });

  test("says that a tool failed, or is not there", async () => {
    const connection = await connect(at(path), never);
    expect(await connection.callTool("fail", {}, never)).toMatchObject({
      text: "it is broken",
      isError: true,
    });
    await expect(connection.callTool("nothing", {}, never)).rejects.toThrow(
      'The MCP server "shop" reports an error',
    );
    await connection.close();
  });

  test("a call ends with its signal", async () => {
    const connection = await connect(at(path), never);
    const controller = new AbortController();
    const waiting = connection.callTool("wait", {}, controller.signal);
    controller.abort(new Error("the client left"));
    await expect(waiting).rejects.toThrow("the client left");
    await connection.close();
  });

  test("answers that are too long are not read", async () => {
    const connection = await connect(at(path), never);
    await expect(connection.callTool("babble", {}, AbortSignal.timeout(20_000))).rejects.toThrow(
      "more bytes than allowed",
    );
    await connection.close();
  });
});

test("a session ends at its server", async () => {
  const connection = await connect(at("/session"), never);
  await connection.close();
  expect(server.asked.at(-1)).toMatchObject({ method: "DELETE", path: "/session" });
});

test("images are handed on that models can see, and the authorization is not repeated", async () => {
  const connection = await connect(at("/mcp"), never);
  expect(await connection.callTool("draw", {}, never)).toEqual({
    text: "drawn",
    images: ["data:image/png;base64,aGVsbG8="],
    isError: false,
  });
  const { text } = await connection.callTool("echo_headers", {}, never);
  expect(text).toContain("[redacted]");
  expect(text).not.toContain(SECRET);
  await connection.close();
});

describe("is not called", () => {
  test.each([
    ["a name that leads to this machine", "http://other.test/mcp"],
    ["an address of a cloud's metadata", "http://169.254.169.254/mcp"],
    ["a private address", "http://10.0.0.1/mcp"],
    ["credentials in the address", "http://user:password@kept.test/mcp"],
  ])("%s", async (_what, url) => {
    await expect(connect({ ...at("/mcp"), url }, never)).rejects.toThrow("cannot be called");
    expect(server.asked).toEqual([]);
  });

  test("where a redirect leads, and no credentials go there", async () => {
    for (const location of [
      `http://kept.test:${server.port}/elsewhere`,
      "http://169.254.169.254/latest",
    ]) {
      odd = (path) =>
        path === "/moved" ? new Response(null, { status: 307, headers: { location } }) : undefined;
      await expect(connect(at("/moved"), never)).rejects.toMatchObject({ name: "McpFailure" });
    }
    expect(server.asked.every(({ path }) => path === "/moved")).toBeTrue();
  });

  test("where the first transport's endpoint is that of another host", async () => {
    odd = (path, { method }) => {
      if (path !== "/trap") return undefined;
      if (method !== "GET") return new Response(null, { status: 405 });
      const data = "event: endpoint\ndata: http://169.254.169.254/latest\n\n";
      return new Response(data, { headers: { "content-type": "text/event-stream" } });
    };
    await expect(connect(at("/trap"), never)).rejects.toMatchObject({ name: "McpFailure" });
  });
});

describe("fails with a clear message, without the authorization", () => {
  const deep = `{"jsonrpc":"2.0","id":0,"result":${"[".repeat(200_000)}${"]".repeat(200_000)}}`;
  test.each([
    ["401", () => new Response("no", { status: 401 })],
    ["500", () => new Response("no", { status: 500 })],
    [
      "not the protocol",
      () => new Response("<html>", { headers: { "content-type": "text/html" } }),
    ],
    ["not JSON", () => new Response("{", { headers: { "content-type": "application/json" } })],
    ["deep JSON", () => new Response(deep, { headers: { "content-type": "application/json" } })],
    [
      "a compressed answer",
      () => new Response(Bun.gzipSync("{}"), { headers: { "content-encoding": "gzip" } }),
    ],
    [
      "an endless answer",
      () =>
        new Response(
          new ReadableStream({ pull: (controller) => controller.enqueue(new Uint8Array(100_000)) }),
          { headers: { "content-type": "application/json" } },
        ),
    ],
    [
      "an error that quotes it",
      async (_path: string, request: Request) =>
        Response.json({
          jsonrpc: "2.0",
          id: ((await request.json()) as { id: number }).id,
          error: { code: -32000, message: `bad ${SECRET}` },
        }),
    ],
  ])("%s", async (_what, answer) => {
    odd = answer;
    const failure = await connect(at("/odd"), AbortSignal.timeout(20_000)).then(
      () => new Error("connected"),
      (error: Error) => error,
    );
    expect(failure.message).toStartWith('The MCP server "shop" ');
    expect(failure.message).not.toContain(SECRET);
    expect(failure.message).not.toContain("127.0.0.1");
  });

  test("a server that keeps silent is given up with the signal", async () => {
    odd = () => new Promise<Response>(() => {});
    const controller = new AbortController();
    const waiting = connect(at("/silent"), controller.signal);
    controller.abort(new Error("the client left"));
    await expect(waiting).rejects.toThrow("the client left");
  });
});
