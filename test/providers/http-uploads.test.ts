import { describe, expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import { LATE_RESPONSE_WAIT_MS } from "../../src/providers/transport/connection.ts";
import type { Connect } from "../../src/providers/transport/dial.ts";
import { multipartForm } from "../../src/providers/transport/multipart-upload.ts";
import type { ProviderRequest } from "../../src/providers/transport/provider-response.ts";
import {
  answerOf,
  certificateOf,
  codeOf,
  createHttpFetch,
  outcomeOf,
  rawServersOf,
  requestOf,
  send,
} from "./http-raw-server.ts";

/** A stream that is told apart by what was asked of it. */
function contentOf(pieces: readonly Uint8Array[] | "endless") {
  const state = { pulled: 0, isCancelled: false, cancelled: Promise.withResolvers<void>() };
  const piece = Buffer.alloc(65_536, "x");
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      const index = state.pulled++;
      if (pieces === "endless") controller.enqueue(piece);
      else if (index < pieces.length) controller.enqueue(pieces[index]!);
      else controller.close();
    },
    cancel() {
      state.isCancelled = true;
      state.cancelled.resolve();
    },
  });
  return { stream, state };
}

const uploadOf = (body: ReadableStream<Uint8Array>, changes: Partial<ProviderRequest> = {}) =>
  requestOf({ body, ...changes });

describe.each(["http", "https"] as const)("over %s", (protocol) => {
  const startRawServer = rawServersOf(protocol);

  test("a stream is sent in chunks, whole, and its connection takes a request afterwards", async () => {
    using server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      ...(protocol === "https" && {
        tls: certificateOf("good"),
      }),
      async fetch(request) {
        const hash = new Bun.CryptoHasher("sha256");
        let bytes = 0;
        for await (const piece of request.body ?? []) {
          bytes += piece.length;
          hash.update(piece);
        }
        return new Response(
          `${request.headers.get("content-length")} ${bytes} ${hash.digest("hex")}`,
        );
      },
    });
    const pieces = Array.from({ length: 300 }, (_, index) =>
      Buffer.alloc((index * 7_919) % 200_000, index),
    );
    const whole = Buffer.concat(pieces);
    const httpFetch = createHttpFetch();
    const url = `${protocol}://127.0.0.1:${server.port}/`;
    const response = await httpFetch(url, uploadOf(contentOf(pieces).stream));
    const sha256 = new Bun.CryptoHasher("sha256").update(whole).digest("hex");
    expect(await response.text()).toBe(`null ${whole.length} ${sha256}`);
    expect(await outcomeOf(httpFetch, url)).toStartWith("200 2 2 ");
  });

  test("a form is sent with its length, and its files are read as they go", async () => {
    using server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      ...(protocol === "https" && { tls: certificateOf("good") }),
      async fetch(request) {
        const { headers } = request;
        const form = await request.formData();
        const file = form.get("file") as File;
        const sha256 = new Bun.CryptoHasher("sha256").update(await file.bytes()).digest("hex");
        const names = [...form.keys()].join();
        const framing = `${headers.has("content-length")} ${headers.has("transfer-encoding")}`;
        return new Response(`${framing} ${names} ${form.get("prompt")} ${file.name} ${sha256}`);
      },
    });
    const bytes = crypto.getRandomValues(new Uint8Array(65_536));
    const whole = Buffer.concat(Array.from({ length: 150 }, () => bytes));
    let pulled = 0;
    const stream = () =>
      new ReadableStream<Uint8Array>({
        pull(controller) {
          if (pulled++ < 150) controller.enqueue(bytes.slice());
          else controller.close();
        },
      });
    const file = { name: "a.wav", contentType: "audio/wav", sizeBytes: whole.length, stream };
    const { contentType, body, bodyBytes } = multipartForm([
      { name: "include[]", value: "one" },
      { name: "include[]", value: "two" },
      { name: "prompt", value: 'an "odd"; über' },
      { name: "file", file },
    ]);
    const httpFetch = createHttpFetch();
    const url = `${protocol}://127.0.0.1:${server.port}/`;
    const headers = { "content-type": contentType };
    const response = await httpFetch(url, requestOf({ headers, body, bodyBytes }));
    const sha256 = new Bun.CryptoHasher("sha256").update(whole).digest("hex");
    expect(await response.text()).toBe(
      `true false include[],include[],prompt,file an "odd"; über a.wav ${sha256}`,
    );
  });

  test.each([
    ["longer", 10],
    ["shorter", 30],
  ])("a stream that is %s than its length fails the call", async (_, bodyBytes) => {
    await using server = startRawServer(() => undefined);
    const { stream } = contentOf([Buffer.alloc(20)]);
    const call = createHttpFetch()(server.url, uploadOf(stream, { bodyBytes }));
    expect(call).rejects.toThrow("than its length");
  });

  test("bytes are sent whole with their length, on connections that are new and used", async () => {
    using server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      ...(protocol === "https" && { tls: certificateOf("good") }),
      async fetch(request) {
        const body = await request.bytes();
        const sha256 = new Bun.CryptoHasher("sha256").update(body).digest("hex");
        return new Response(`${request.headers.get("content-length")} ${sha256}`);
      },
    });
    const httpFetch = createHttpFetch();
    const url = `${protocol}://127.0.0.1:${server.port}/`;
    for (const length of [0, 1, 100_000, 9_000_001]) {
      // A part of a larger buffer, of which nothing else may be sent.
      const body = crypto.getRandomValues(new Uint8Array(65_536));
      const bytes = Buffer.concat(Array.from({ length: 140 }, () => body)).subarray(7, 7 + length);
      const response = await httpFetch(url, requestOf({ body: bytes }));
      const sha256 = new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
      expect(await response.text()).toBe(`${length} ${sha256}`);
    }
  });

  test("a server that does not read holds the stream back, and an abort cancels it", async () => {
    await using server = startRawServer(
      () => undefined,
      ({ socket }) => socket.pause(),
    );
    await using other = startRawServer((connection) => send(connection, answerOf("")));
    const { stream, state } = contentOf("endless");
    const controller = new AbortController();
    const call = createHttpFetch()(server.url, uploadOf(stream, { signal: controller.signal }));
    const outcome = call.catch((error: unknown) => error);
    const fetchOther = createHttpFetch();
    let before = -1;
    while (before !== state.pulled || state.pulled === 0) {
      before = state.pulled;
      for (let turn = 0; turn < 50; turn++) await outcomeOf(fetchOther, other.url);
    }
    // What the system's buffers take at both ends.
    expect(state.pulled * 65_536).toBeLessThan(32_000_000);
    controller.abort("gone");
    expect(await outcome).toBe("gone");
    await state.cancelled.promise;
    server.connections[0]!.socket.resume();
    await server.until(() => server.connections[0]!.isClosed);
  });

  test("an answer before the end of the stream is taken, the stream cancelled, the connection closed", async () => {
    await using server = startRawServer(
      () => undefined,
      (connection) => send(connection, answerOf("too large", "connection: keep-alive\r\n")),
    );
    const { stream, state } = contentOf("endless");
    const response = await createHttpFetch()(server.url, uploadOf(stream));
    expect(await response.text()).toBe("too large");
    await state.cancelled.promise;
    await server.until(() => server.connections[0]!.isClosed);
  });

  test("an answer that refuses the body is taken although the connection was closed behind it", async () => {
    using server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      maxRequestBodySize: 4_000_000,
      ...(protocol === "https" && { tls: certificateOf("good") }),
      fetch: async (request) => new Response(await request.text()),
    });
    const httpFetch = createHttpFetch();
    for (let time = 0; time < 5; time++) {
      const { stream, state } = contentOf("endless");
      const url = `${protocol}://127.0.0.1:${server.port}/`;
      expect((await httpFetch(url, uploadOf(stream))).status).toBe(413);
      await state.cancelled.promise;
    }
  });

  test("a stream that fails fails the call with its error, and the server sees no end of the body", async () => {
    await using server = startRawServer(() => undefined);
    const failure = new Error("the disk is gone");
    let pulled = 0;
    const stream = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (pulled++ === 0) controller.enqueue(Buffer.from("begun"));
        else controller.error(failure);
      },
    });
    const call = createHttpFetch()(server.url, uploadOf(stream));
    expect(await call.catch((error: unknown) => error)).toBe(failure);
    await server.until(() => server.connections[0]?.isClosed === true);
    expect(server.connections[0]!.received).not.toContain("0\r\n\r\n");
  });

  test("a server that ends the connection in mid-upload is a failure, and the stream is cancelled", async () => {
    await using server = startRawServer(() => undefined);
    const { stream, state } = contentOf("endless");
    const call = createHttpFetch()(server.url, uploadOf(stream)).catch((thrown) => thrown);
    await server.until(() => (server.connections[0]?.received.length ?? 0) > 1_000_000);
    server.connections[0]!.socket.terminate();
    const error = await call;
    expect(codeOf(error)).toMatch(/^(ECONNRESET|CONNECTION_CLOSED|EPIPE)$/);
    expect(error.lostUsedConnection).toBe(false);
    await state.cancelled.promise;
  });

  test("an upload takes no connection that was used before", async () => {
    let requests = 0;
    await using server = startRawServer((connection) => {
      requests++;
      send(connection, answerOf("ok"));
    });
    const httpFetch = createHttpFetch();
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    const { stream } = contentOf([Buffer.from("a")]);
    expect(await (await httpFetch(server.url, uploadOf(stream))).text()).toBe("ok");
    expect([requests, server.connections.length]).toEqual([2, 2]);
  });
});

/** A connect whose sockets take no more bytes after some writes, as where the server has closed. */
function connectThatStopsTaking() {
  const stopped = Promise.withResolvers<void>();
  const connect: Connect = (options) => {
    const { open } = options.socket;
    return Bun.connect({
      ...options,
      socket: {
        ...options.socket,
        open(socket) {
          const write = socket.write.bind(socket);
          let writes = 0;
          socket.write = (bytes: string | Bun.BufferSource) => {
            if (++writes <= 3) return write(bytes as string);
            stopped.resolve();
            return -1;
          };
          open!(socket);
        },
      },
    });
  };
  return { connect, stopped: stopped.promise };
}

test("an answer that comes when the socket takes nothing more is still taken", async () => {
  await using server = rawServersOf("http")(() => undefined);
  const { connect, stopped } = connectThatStopsTaking();
  const { stream, state } = contentOf("endless");
  const call = createHttpFetch({ connect })(server.url, uploadOf(stream));
  await stopped;
  await state.cancelled.promise;
  await server.until(() => server.connections.length === 1);
  send(server.connections[0]!, answerOf("too large").replace("200 OK", "413 No"));
  const response = await call;
  expect([response.status, await response.text()]).toEqual([413, "too large"]);
  await server.until(() => server.connections[0]!.isClosed);
});

test("where no answer comes either, the call fails after LATE_RESPONSE_WAIT_MS", async () => {
  await using server = rawServersOf("http")(() => undefined);
  const { connect, stopped } = connectThatStopsTaking();
  const clock = new VirtualClock();
  const { stream, state } = contentOf("endless");
  const call = createHttpFetch({ connect, clock })(server.url, uploadOf(stream));
  const outcome = call.catch(codeOf);
  await stopped;
  await state.cancelled.promise;
  clock.advance(LATE_RESPONSE_WAIT_MS);
  expect(await outcome).toBe("CONNECTION_CLOSED");
  await server.until(() => server.connections[0]?.isClosed === true);
});

test("a stream whose call ends before it is read is cancelled", async () => {
  const gone = contentOf("endless");
  const call = createHttpFetch()(
    "http://127.0.0.1:1/",
    uploadOf(gone.stream, { signal: AbortSignal.abort("gone") }),
  );
  expect(await call.catch((error: unknown) => error)).toBe("gone");
  expect(gone.state.isCancelled).toBe(true);
  const refused = contentOf("endless");
  const outcome = createHttpFetch()("http://127.0.0.1:1/", uploadOf(refused.stream));
  expect(codeOf(await outcome.catch((error: unknown) => error))).toBe("ECONNREFUSED");
  expect(refused.state.isCancelled).toBe(true);
});

test("GET and DELETE without a body do not say that it is empty", async () => {
  const requests: string[] = [];
  await using server = rawServersOf("http")((connection, request) => {
    requests.push(request);
    send(connection, answerOf("ok"));
  });
  const httpFetch = createHttpFetch();
  for (const method of ["GET", "DELETE", "POST"]) {
    await (await httpFetch(server.url, requestOf({ method, body: "" }))).text();
  }
  expect(requests.map((request) => request.includes("content-length"))).toEqual([
    false,
    false,
    true,
  ]);
});
