import { expect, test } from "bun:test";
import { connect as connectTcp, createServer, type Socket } from "node:net";
import { VirtualClock } from "../../src/lib/clock.ts";
import { readOutboundProxies } from "../../src/platform/config/outbound-proxies.ts";
import { proxyFor } from "../../src/providers/transport/request-head.ts";
import {
  answerOf,
  codeOf,
  createHttpFetch,
  outcomeOf,
  type RawConnection,
  requestOf,
  send,
  startRawServer,
} from "./http-raw-server.ts";
import { adapter, callOf, failureOf } from "./openai-adapter.ts";

const answerOk = (connection: RawConnection) => send(connection, answerOf("ok"));
const portOf = ({ url }: { url: string }) => Number(new URL(url).port);

/** A proxy that makes tunnels, to 127.0.0.1 whatever is asked for, and keeps what it was asked. */
async function startTunnelProxy(consent = "HTTP/1.1 200 Connection established\r\n\r\n") {
  const asked: string[] = [];
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    clients.add(client);
    client.on("error", () => undefined);
    let head = "";
    const onHead = (bytes: Buffer) => {
      head += bytes.toString("latin1");
      if (!head.includes("\r\n\r\n")) return;
      client.off("data", onHead);
      asked.push(head);
      const upstream = connectTcp(Number(/:(\d+) HTTP/.exec(head)?.[1]), "127.0.0.1");
      upstream.on("error", () => client.destroy());
      upstream.on("connect", () => {
        client.write(consent);
        client.pipe(upstream);
        upstream.pipe(client);
      });
      client.on("close", () => upstream.destroy());
    };
    client.on("data", onHead);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as { port: number }).port,
    asked,
    async untilAllClosed() {
      const open = [...clients].filter((client) => !client.closed);
      await Promise.all(
        open.map((client) => new Promise((resolve) => client.on("close", resolve))),
      );
    },
    [Symbol.dispose]: () => void server.close(),
  };
}

const through = (port: number, credentials = "") =>
  readOutboundProxies({ ALL_PROXY: `http://${credentials}127.0.0.1:${port}` });

test("an https URL is called through a tunnel, whose connection is used again", async () => {
  await using server = startRawServer(answerOk, undefined, "good");
  using proxy = await startTunnelProxy();
  const httpFetch = createHttpFetch({ proxies: through(proxy.port, "user:p%40ss@") });
  const url = `https://localhost:${portOf(server)}/`;
  expect(await outcomeOf(httpFetch, url)).toBe("200 ok");
  expect(await outcomeOf(httpFetch, url)).toBe("200 ok");
  const authority = `localhost:${portOf(server)}`;
  expect(proxy.asked).toEqual([
    `CONNECT ${authority} HTTP/1.1\r\nhost: ${authority}\r\nproxy-authorization: Basic dXNlcjpwQHNz\r\n\r\n`,
  ]);
  // The proxy's credentials are not the server's to know.
  expect(server.connections).toHaveLength(1);
});

test("what the server is sent through a tunnel tells nothing of the proxy", async () => {
  const requests: string[] = [];
  await using server = startRawServer(
    (connection, request) => {
      requests.push(request);
      answerOk(connection);
    },
    undefined,
    "good",
  );
  using proxy = await startTunnelProxy();
  const httpFetch = createHttpFetch({ proxies: through(proxy.port, "user:secret@") });
  expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
  expect(requests[0]).toStartWith("POST /v1/x?a=b HTTP/1.1\r\nhost: 127.0.0.1:");
  expect(requests[0]).not.toContain("proxy");
});

test.each(["other", "expired", "self"] as const)(
  "a certificate of kind %p is refused inside a tunnel too",
  async (certificate) => {
    await using server = startRawServer(answerOk, undefined, certificate);
    using proxy = await startTunnelProxy();
    const httpFetch = createHttpFetch({ proxies: through(proxy.port) });
    for (const host of ["localhost", "127.0.0.1"]) {
      const call = httpFetch(`https://${host}:${portOf(server)}/`, requestOf());
      const error = await call.catch((thrown) => thrown);
      expect(error.isLasting).toBe(true);
      expect(error.message).toContain("certificate is not accepted");
    }
    await proxy.untilAllClosed();
    expect(server.connections.filter((one) => one.received !== "")).toEqual([]);
  },
);

test("an IPv6 address is asked for in brackets", async () => {
  using server = Bun.serve({ hostname: "::1", port: 0, fetch: () => new Response("ok") });
  const asked: string[] = [];
  await using proxy = startRawServer((connection, request) => {
    asked.push(request);
    send(connection, "HTTP/1.1 403 Forbidden\r\n\r\n");
  });
  const httpFetch = createHttpFetch({ proxies: through(portOf(proxy)) });
  const url = `https://[::1]:${server.port}/`;
  expect(await outcomeOf(httpFetch, url)).toBe("PROXY_REFUSED");
  expect(asked[0]).toStartWith(`CONNECT [::1]:${server.port} HTTP/1.1\r\n`);
});

test("a large body, an endless answer and an abort work through a tunnel", async () => {
  let length = 0;
  await using server = startRawServer(
    (connection, request) => {
      length = request.length;
      send(connection, `HTTP/1.1 200 OK\r\n\r\n${"x".repeat(3_000_000)}`);
    },
    undefined,
    "good",
  );
  using proxy = await startTunnelProxy();
  const controller = new AbortController();
  const httpFetch = createHttpFetch({ proxies: through(proxy.port) });
  const body = "y".repeat(5_000_000);
  const request = requestOf({ body, signal: controller.signal });
  const response = await httpFetch(server.url, request);
  expect(length).toBeGreaterThan(body.length);
  const reader = response.body!.getReader();
  for (let read = 0; read < 3_000_000; ) read += (await reader.read()).value!.length;
  const rest = reader.read().catch((error: unknown) => error);
  controller.abort("gone");
  expect(await rest).toBe("gone");
  await proxy.untilAllClosed();
  await server.until(() => server.connections[0]!.isClosed);
});

test.each([
  [407, true],
  [403, true],
  [302, true],
  [100, true],
  [502, false],
  [503, false],
])(
  "a proxy that refuses the tunnel with %d is a failure, a lasting one: %p",
  async (status, is) => {
    await using proxy = startRawServer((connection) =>
      send(connection, `HTTP/1.1 ${status} No\r\ncontent-length: 5\r\n\r\nno no`),
    );
    const httpFetch = createHttpFetch({ proxies: through(portOf(proxy)) });
    const error = await httpFetch("https://h.test/", requestOf()).catch((thrown) => thrown);
    expect([error.code, error.isLasting]).toEqual(["PROXY_REFUSED", is]);
    expect(error.message).toContain(String(status));
    await proxy.until(() => proxy.connections[0]!.isClosed);
  },
);

test.each([
  ["no HTTP", "SSH-2.0-OpenSSH\r\n\r\n"],
  ["an endless head", `HTTP/1.1 200 OK\r\na: ${"b".repeat(20_000)}`],
  [
    "bytes after its response",
    "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
  ],
  ["a folded line", "HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n"],
])("a proxy that answers CONNECT with %s is a failure", async (_what, answer) => {
  await using proxy = startRawServer((connection) => send(connection, answer));
  const httpFetch = createHttpFetch({ proxies: through(portOf(proxy)) });
  expect(await outcomeOf(httpFetch, "https://h.test/")).toBe("PROXY_BROKEN");
  await proxy.until(() => proxy.connections[0]!.isClosed);
});

test("a proxy whose consent drips in byte by byte makes a tunnel", async () => {
  await using server = startRawServer(answerOk, undefined, "good");
  using proxy = await startTunnelProxy("HTTP/1.0 200 \r\nvia: x\r\n");
  const httpFetch = createHttpFetch({
    proxies: through(proxy.port),
    // The rest of the consent, one byte at a time.
    connect: (options) => {
      const { data } = options.socket;
      let isFirst = true;
      return Bun.connect({
        ...options,
        socket: {
          ...options.socket,
          data(socket, bytes) {
            if (!isFirst) return data!(socket, bytes);
            isFirst = false;
            for (const byte of Buffer.concat([bytes, Buffer.from("\r\n")])) {
              data!(socket, Buffer.from([byte]));
            }
          },
        },
      });
    },
  });
  expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
});

test.each([
  ["ends the connection", (connection: RawConnection) => void connection.socket.end()],
  ["resets the connection", (connection: RawConnection) => connection.socket.terminate()],
])("a proxy that %s before its tunnel stands is a failure", async (_how, end) => {
  await using proxy = startRawServer(end);
  const httpFetch = createHttpFetch({ proxies: through(portOf(proxy)) });
  expect(await outcomeOf(httpFetch, "https://h.test/")).toMatch(/^(CONNECTION_CLOSED|ECONNRESET)$/);
});

test("a proxy that never answers, and one behind whose consent nothing comes, time out", async () => {
  for (const consent of ["", "HTTP/1.1 200 OK\r\n\r\n"]) {
    await using proxy = startRawServer((connection) => send(connection, consent));
    const clock = new VirtualClock();
    const httpFetch = createHttpFetch({ clock, proxies: through(portOf(proxy)) });
    const request = requestOf({ connectTimeoutMs: 500 });
    const call = httpFetch("https://h.test/", request).catch((error) => error);
    // The CONNECT is taken off what was received; the first bytes of TLS are what then lies there.
    await proxy.until(() => proxy.connections.length === 1);
    if (consent !== "") await proxy.until(() => proxy.connections[0]!.received !== "");
    clock.advance(500);
    expect((await call).kind).toBe("timeout");
    await proxy.until(() => proxy.connections[0]!.isClosed);
  }
});

test("an abort while the tunnel is made closes the connection", async () => {
  const asked = Promise.withResolvers<void>();
  await using proxy = startRawServer(() => asked.resolve());
  const controller = new AbortController();
  const httpFetch = createHttpFetch({ proxies: through(portOf(proxy)) });
  const call = httpFetch("https://h.test/", requestOf({ signal: controller.signal }));
  await asked.promise;
  controller.abort("gone");
  expect(await call.catch((error: unknown) => error)).toBe("gone");
  await proxy.until(() => proxy.connections[0]!.isClosed);
});

test("a proxy that cannot be reached is a failure that names it, and nothing goes past it", async () => {
  await using server = startRawServer(answerOk);
  const httpFetch = createHttpFetch({ proxies: through(1) });
  for (const url of [server.url, server.url.replace("http:", "https:")]) {
    const error = await httpFetch(url, requestOf()).catch((thrown) => thrown);
    expect(codeOf(error)).toBe("ECONNREFUSED");
    expect(error.message).toContain("proxy");
  }
  expect(server.connections).toHaveLength(0);
});

test("an http URL is sent to the proxy in absolute form, with the proxy's credentials", async () => {
  const requests: string[] = [];
  await using proxy = startRawServer((connection, request) => {
    requests.push(request);
    answerOk(connection);
  });
  const httpFetch = createHttpFetch({ proxies: through(portOf(proxy), "user:p%40ss@") });
  expect(await outcomeOf(httpFetch, "http://h.test:8000/v1/x?a=b")).toBe("200 ok");
  expect(requests[0]).toStartWith(
    "POST http://h.test:8000/v1/x?a=b HTTP/1.1\r\nhost: h.test:8000\r\n",
  );
  expect(requests[0]).toContain("\r\nproxy-authorization: Basic dXNlcjpwQHNz\r\n");
});

test("a proxy that demands credentials for an http URL is at fault, not the caller", async () => {
  await using proxy = startRawServer((connection) =>
    send(connection, "HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n"),
  );
  const { createHttpClient } = await import("../../src/providers/transport/http-client.ts");
  const httpClient = createHttpClient({ proxies: through(portOf(proxy)) });
  const failure = await failureOf(adapter("http://h.test/v1", { httpClient }).chat(callOf("m")));
  expect(failure.kind).toBe("misconfigured");
});

test.each([
  ["*", "http://h.test/", true],
  ["h.test", "http://h.test/", true],
  ["h.test", "http://a.h.test/", true],
  ["h.test", "http://ah.test/", false],
  [".h.test", "https://a.h.test/", true],
  [".h.test", "https://h.test/", true],
  ["*.h.test", "https://a.h.test/", true],
  ["H.TEST", "https://h.test/", true],
  ["h.test", "https://h.test./", true],
  ["h.test:443", "https://h.test/", true],
  ["h.test:8443", "https://h.test/", false],
  ["h.test:80", "http://h.test/", true],
  ["127.0.0.1", "http://127.0.0.1:9/", true],
  ["127.0.0.1:9", "http://127.0.0.1:9/", true],
  ["27.0.0.1", "http://127.0.0.1/", false],
  ["10.0.0.0/8", "http://10.1.2.3/", true],
  ["10.0.0.0/8", "http://11.1.2.3/", false],
  ["10.0.0.0/99", "http://10.1.2.3/", false],
  ["10.0.0.0/8", "http://10.h.test/", false],
  ["::1", "http://[::1]/", true],
  ["[::1]", "http://[0:0::1]/", true],
  ["[::1]:8000", "http://[::1]:8000/", true],
  ["[::1]:8000", "http://[::1]:8001/", false],
  ["fd00::/8", "http://[fd12::1]/", true],
  ["a,b,h.test", "http://h.test/", true],
  [".", "http://h.test/", false],
  ["", "http://h.test/", false],
])("NO_PROXY=%s exempts %s: %p", (entries, url, is) => {
  const proxies = readOutboundProxies({ ALL_PROXY: "http://proxy.test", NO_PROXY: entries });
  expect(proxyFor(new URL(url), proxies) === undefined).toBe(is);
});
