import { describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import { IDLE_TIMEOUT_MS } from "../../src/providers/transport/connection-pool.ts";
import type { Connect } from "../../src/providers/transport/dial.ts";
import {
  answerOf,
  codeOf,
  createHttpFetch,
  outcomeOf,
  type RawConnection,
  rawServersOf,
  requestOf,
  send,
  startRawServer,
} from "./http-raw-server.ts";

describe.each(["http", "https"] as const)("over %s", (protocol) => {
  const startRawServer = rawServersOf(protocol);

  test("a request is one POST with host, length and the caller's headers", async () => {
    const requests: string[] = [];
    await using server = startRawServer((connection, request) => {
      requests.push(request);
      send(connection, answerOf("ok"));
    });
    const body = JSON.stringify({ text: "é漢" });
    const response = await createHttpFetch()(server.url, requestOf({ body }));
    expect(await response.text()).toBe("ok");
    expect(response.headers.get("Content-Length")).toBe("2");
    expect(response.headers.get("x-none")).toBeNull();
    const { host } = new URL(server.url);
    expect(requests).toEqual([
      `POST /v1/x?a=b HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\nconnection: keep-alive\r\n` +
        `content-length: ${Buffer.byteLength(body)}\r\n\r\n${Buffer.from(body).toString("latin1")}`,
    ]);
  });

  test("10,000 requests one after the other take one connection", async () => {
    await using server = startRawServer((connection, _request, index) =>
      send(connection, answerOf(String(index))),
    );
    const httpFetch = createHttpFetch();
    for (let index = 0; index < 10_000; index++) {
      const response = await httpFetch(server.url, requestOf());
      if ((await response.text()) !== String(index))
        throw new Error(`answer ${index} is another's`);
    }
    expect(server.connections).toHaveLength(1);
  });

  test("200 requests at once, again and again, each get their answer, and leak no connection", async () => {
    await using server = startRawServer((connection, request) =>
      queueMicrotask(() =>
        send(connection, answerOf(request.slice(request.indexOf("\r\n\r\n") + 4))),
      ),
    );
    const clock = new VirtualClock();
    const httpFetch = createHttpFetch({
      clock,
      afterInBackground: (ms, run) => clock.after(ms, run),
    });
    for (let round = 0; round < 10; round++) {
      const bodies = Array.from({ length: 200 }, (_, index) => `${round}/${index}`);
      const answers = bodies.map(async (body) =>
        (await httpFetch(server.url, requestOf({ body }))).text(),
      );
      expect(await Promise.all(answers)).toEqual(bodies);
    }
    expect(server.connections.length).toBeLessThanOrEqual(200);
    clock.advance(IDLE_TIMEOUT_MS);
    await server.until(() => server.connections.every((one) => one.isClosed));
  });

  test("a request body that takes many writes arrives whole", async () => {
    const body = JSON.stringify({ text: "漢é ".repeat(1_500_000) });
    let received = 0;
    await using server = startRawServer((connection, request) => {
      received = Bun.hash.crc32(request.slice(request.indexOf("\r\n\r\n") + 4));
      send(connection, answerOf("ok"));
    });
    const httpFetch = createHttpFetch();
    for (let time = 0; time < 2; time++) {
      expect(await (await httpFetch(server.url, requestOf({ body }))).text()).toBe("ok");
      expect(received).toBe(Bun.hash.crc32(Buffer.from(body).toString("latin1")));
    }
    expect(server.connections).toHaveLength(1);
  });

  test.each([
    ["connection: close", answerOf("ok", "connection: close\r\n")],
    ["bytes behind the response", `${answerOf("ok")}HTTP/1.1 200 OK\r\n\r\n`],
    [
      "two framings",
      "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ],
    ["HTTP/1.0", answerOf("ok").replace("1.1", "1.0")],
  ])("a connection with %s is not used again", async (_what, answer) => {
    await using server = startRawServer((connection) => send(connection, answer));
    const httpFetch = createHttpFetch();
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    expect(server.connections).toHaveLength(2);
    await server.until(() => server.connections.every((one) => one.isClosed));
  });

  test("a connection on which the server speaks unasked is dropped, and its bytes answer nothing", async () => {
    await using server = startRawServer((connection) => send(connection, answerOf("ok")));
    const httpFetch = createHttpFetch();
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    send(server.connections[0]!, answerOf("poison"));
    await server.until(() => server.connections[0]!.isClosed);
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    expect(server.connections).toHaveLength(2);
  });

  test("what a server says on an idle connection before the next request leaves is not its answer", async () => {
    await using server = startRawServer((connection) => send(connection, answerOf("ok")));
    let hear: ((bytes: string) => void) | undefined;
    const connect: Connect = async (options) => {
      const socket = await Bun.connect(options);
      hear ??= (bytes) => options.socket.data!(socket, Buffer.from(bytes));
    };
    const httpFetch = createHttpFetch({ connect });
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    const outcome = outcomeOf(httpFetch, server.url);
    // Such as HAProxy and others say where nobody asks them for a while.
    hear!("HTTP/1.1 408 Request Time-out\r\ncontent-length: 0\r\n\r\n");
    expect(await outcome).toBe("200 ok");
    expect(server.connections).toHaveLength(2);
  });

  test("a connection that the server closed while it was idle is replaced", async () => {
    await using other = startRawServer((connection) => send(connection, answerOf("other")));
    await using server = startRawServer((connection) => send(connection, answerOf("ok")));
    const httpFetch = createHttpFetch();
    for (let time = 1; time <= 3; time++) {
      expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
      expect(server.connections).toHaveLength(time);
      server.connections.at(-1)!.socket.end();
      // An exchange with another server takes until the client has seen what was sent before it.
      expect(await outcomeOf(createHttpFetch(), other.url)).toBe("200 other");
    }
  });

  test("idle connections are closed after IDLE_TIMEOUT_MS and not before", async () => {
    await using server = startRawServer((connection) => send(connection, answerOf("ok")));
    const clock = new VirtualClock();
    const httpFetch = createHttpFetch({
      clock,
      afterInBackground: (ms, run) => clock.after(ms, run),
    });
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    clock.advance(IDLE_TIMEOUT_MS - 1);
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    clock.advance(IDLE_TIMEOUT_MS - 1);
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    expect(server.connections).toHaveLength(1);
    clock.advance(IDLE_TIMEOUT_MS);
    await server.until(() => server.connections[0]!.isClosed);
  });

  test("a request that a dead connection takes no byte of is sent on a new one", async () => {
    const bodies: string[] = [];
    await using server = startRawServer((connection, request) => {
      bodies.push(request.slice(request.indexOf("\r\n\r\n") + 4));
      send(connection, answerOf("ok"));
    });
    const httpFetch = createHttpFetch();
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    // Reset, but the client cannot have noticed before it sends.
    server.connections[0]!.socket.terminate();
    const small = httpFetch(server.url, requestOf({ body: "small" }));
    expect(await (await small).text()).toBe("ok");
    server.connections[1]!.socket.terminate();
    const large = httpFetch(server.url, requestOf({ body: "large".repeat(100_000) }));
    expect(await (await large).text()).toBe("ok");
    expect(bodies).toEqual(["{}", "small", "large".repeat(100_000)]);
    expect(server.connections).toHaveLength(3);
  });

  test.each([
    ["closed", ({ socket }: RawConnection) => void socket.end()],
    ["reset", ({ socket }: RawConnection) => socket.terminate()],
    ["closed behind a byte", ({ socket }: RawConnection) => void socket.end("H")],
  ] as [string, (connection: RawConnection) => void][])(
    "a request that was sent on a used connection, then %s, is not sent again: it may have been served",
    async (_how, drop) => {
      let requests = 0;
      await using server = startRawServer((connection) => {
        if (++requests === 1) send(connection, answerOf("ok"));
        else drop(connection);
      });
      const httpFetch = createHttpFetch();
      expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
      expect(await outcomeOf(httpFetch, server.url)).toMatch(/^(CONNECTION_CLOSED|ECONNRESET)$/);
      expect([requests, server.connections.length]).toEqual([2, 1]);
    },
  );

  test("a new connection that ends before the response is a failure, and nothing is sent again", async () => {
    await using server = startRawServer(({ socket }) => socket.end());
    expect(await outcomeOf(createHttpFetch(), server.url)).toBe("CONNECTION_CLOSED");
    expect(server.connections).toHaveLength(1);
  });

  test("a reset before the response, and in the middle of one, is a failure", async () => {
    await using server = startRawServer((connection, _request, index) => {
      if (index > 0) send(connection, "HTTP/1.1 200 OK\r\n\r\nhalf");
      connection.socket.terminate();
    });
    const httpFetch = createHttpFetch();
    expect(await outcomeOf(httpFetch, server.url)).toBe("ECONNRESET");
    expect(await outcomeOf(httpFetch, server.url, "stream")).toBe("ECONNRESET");
  });

  test("an answer that takes longer than the connect timeout is waited for", async () => {
    const clock = new VirtualClock();
    await using server = startRawServer((connection) => {
      clock.advance(60_000);
      send(connection, answerOf("ok"));
    });
    const httpFetch = createHttpFetch({ clock });
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
  });

  test("an early answer to a request that is not read is taken, and the connection is not used again", async () => {
    await using server = startRawServer(
      () => undefined,
      (connection) => {
        connection.socket.pause();
        send(connection, answerOf("too large"));
      },
    );
    const body = "x".repeat(16_000_000);
    const response = await createHttpFetch()(server.url, requestOf({ body }));
    expect(await response.text()).toBe("too large");
    server.connections[0]!.socket.resume();
    await server.until(() => server.connections[0]!.isClosed);
  });
});

test.each([
  [{ "x-a": "b\r\nx-c: d" }],
  [{ "x-a": "b\0" }],
  [{ "x-a": "é" }],
  [{ "x a": "b" }],
  [{ "x-a:b\r\nx": "b" }],
  [{ "Content-Length": "5" }],
  [{ host: "other" }],
  [{ "transfer-encoding": "chunked" }],
])("the headers %j are refused before anything is sent", async (headers: object) => {
  await using server = startRawServer((connection) => send(connection, answerOf("ok")));
  const request = requestOf({ headers: headers as Record<string, string> });
  expect(createHttpFetch()(server.url, request)).rejects.toBeInstanceOf(TypeError);
  expect(server.connections).toHaveLength(0);
});

test("a refused connection and a name that does not exist are failures with their codes", async () => {
  const httpFetch = createHttpFetch();
  expect(await outcomeOf(httpFetch, "http://127.0.0.1:1/")).toBe("ECONNREFUSED");
  expect(await outcomeOf(httpFetch, "http://nowhere.invalid/")).toBe("ENOTFOUND");
});

test("IPv6 literals and names are connected to", async () => {
  using v6 = Bun.serve({ hostname: "::1", port: 0, fetch: (request) => new Response(request.url) });
  using v4 = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("v4") });
  const httpFetch = createHttpFetch();
  expect(await outcomeOf(httpFetch, `http://[::1]:${v6.port}/a`)).toBe(
    `200 http://[::1]:${v6.port}/a`,
  );
  expect(await outcomeOf(httpFetch, `http://localhost:${v4.port}/`)).toBe("200 v4");
});

test("a connection that does not stand within the connect timeout is a failure of kind timeout", async () => {
  const clock = new VirtualClock();
  const attempts: Parameters<Connect>[0][] = [];
  const connect: Connect = (options) => {
    attempts.push(options);
    return new Promise(() => undefined);
  };
  const httpFetch = createHttpFetch({ clock, connect });
  const failure = httpFetch("http://h.test/", requestOf({ connectTimeoutMs: 500 })).catch((e) => e);
  clock.advance(500);
  expect(await failure).toBeInstanceOf(ProviderFailure);
  expect((await failure).kind).toBe("timeout");

  // The attempt comes through after all: nobody waits for it any more.
  await using server = startRawServer(() => undefined);
  await Bun.connect({
    ...attempts[0]!,
    hostname: "127.0.0.1",
    port: Number(new URL(server.url).port),
  });
  await server.until(() => server.connections[0]?.isClosed === true);
  expect(server.connections[0]!.received).toBe("");
});

test("an exception out of connecting is one rejection", async () => {
  const httpFetch = createHttpFetch({ connect: () => Promise.reject(new Error("no sockets")) });
  const failure = await httpFetch("http://h.test/", requestOf()).catch((error: Error) => error);
  expect(codeOf(failure)).toBe("CONNECTION_CLOSED");
});
