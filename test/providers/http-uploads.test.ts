import { describe, expect, test } from "bun:test";
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
