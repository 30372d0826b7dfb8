import { describe, expect, test } from "bun:test";
import { MAX_UNREAD_BYTES } from "../../src/providers/transport/response-body.ts";
import {
  answerOf,
  codeOf,
  createHttpFetch,
  observedConnect,
  outcomeOf,
  type RawConnection,
  rawServersOf,
  requestOf,
  send,
} from "./http-raw-server.ts";

/** Above what Linux lets the buffers of both ends of a connection grow to by default: 32 MiB and 4 MiB. */
const MAX_SYSTEM_BYTES = 64_000_000;
const CHUNKED_HEAD = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;

/** Sends bytes without end, as fast as they are taken. */
function sendForEver(connection: RawConnection, sent: { bytes: number }): void {
  const piece = Buffer.from(`10000\r\n${"x".repeat(65_536)}\r\n`);
  let rest = piece;
  connection.onDrain = () => {
    for (;;) {
      const written = Math.max(0, connection.socket.write(rest));
      sent.bytes += written;
      rest = rest.subarray(written);
      if (rest.length > 0) return;
      rest = piece;
    }
  };
  connection.onDrain();
}

describe.each(["http", "https"] as const)("over %s", (protocol) => {
  const startRawServer = rawServersOf(protocol);

  test("a stream hands on each piece as it comes, and its connection is used again", async () => {
    let upstream: RawConnection | undefined;
    await using server = startRawServer((connection) => {
      upstream = connection;
      send(connection, CHUNKED_HEAD);
    });
    const httpFetch = createHttpFetch();
    for (let time = 0; time < 2; time++) {
      const reader = (await httpFetch(server.url, requestOf())).body!.getReader();
      for (const piece of ["one", "two", "three"]) {
        const reading = reader.read();
        send(upstream!, chunk(piece));
        expect(Buffer.from((await reading).value!).toString()).toBe(piece);
      }
      send(upstream!, "0\r\n\r\n");
      expect((await reader.read()).done).toBe(true);
    }
    expect(server.connections).toHaveLength(1);
  });

  test("a connection is free again when the body has come, read or not", async () => {
    await using server = startRawServer((connection) => send(connection, answerOf("unread")));
    const httpFetch = createHttpFetch();
    const first = await httpFetch(server.url, requestOf());
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 unread");
    expect(server.connections).toHaveLength(1);
    expect(await first.text()).toBe("unread");
  });

  test("an endless stream that nobody reads is held back, goes on when read, and ends when cancelled", async () => {
    const sent = { bytes: 0 };
    await using server = startRawServer((connection) => {
      send(connection, CHUNKED_HEAD);
      sendForEver(connection, sent);
    });
    await using other = startRawServer((connection) => send(connection, answerOf("")));
    const { connect, paused, handed } = observedConnect();
    const response = await createHttpFetch({ connect })(server.url, requestOf());
    await paused;
    const fetchOther = createHttpFetch();
    const turns = async () => {
      for (let turn = 0; turn < 100; turn++) await outcomeOf(fetchOther, other.url);
    };
    // What TLS had decrypted before the pause is still handed on.
    await turns();
    const handedBytes = handed.bytes;
    await turns();
    expect(handedBytes).toBeGreaterThan(MAX_UNREAD_BYTES);
    expect(handed.bytes).toBe(handedBytes);
    // The system's buffers at both ends fill up too, and the kernel lets the receiver's grow for a while.
    const held = sent.bytes;
    expect(held).toBeLessThan(MAX_SYSTEM_BYTES);

    const reader = response.body!.getReader();
    for (let readBytes = 0; readBytes < 2 * held; ) {
      const { value } = await reader.read();
      expect([value![0], value!.at(-1)]).toEqual([0x78, 0x78]);
      readBytes += value!.length;
    }
    await reader.cancel();
    await server.until(() => server.connections[0]!.isClosed);
  });

  test.each(["chunks", "length", "close"])(
    "a large body (%s) that was paused before it is read comes whole",
    async (framing) => {
      const body = "0123456789abcdef".repeat(200_000);
      const answer = {
        chunks: `${CHUNKED_HEAD}${chunk(body.slice(0, 1_000_000))}${chunk(body.slice(1_000_000))}0\r\n\r\n`,
        length: answerOf(body),
        close: `HTTP/1.1 200 OK\r\n\r\n${body}`,
      }[framing]!;
      await using server = startRawServer((connection) => {
        const flush = connection.onDrain;
        connection.onDrain = () => {
          flush();
          if (framing === "close" && connection.unsent.length === 0) connection.socket.end();
        };
        send(connection, answer);
        connection.onDrain();
      });
      for (const as of ["stream", "text"] as const) {
        const { connect, paused } = observedConnect();
        const httpFetch = createHttpFetch({ connect });
        const response = await httpFetch(server.url, requestOf());
        await paused;
        const text =
          as === "text" ? await response.text() : await new Response(response.body).text();
        expect(text === body).toBe(true);
        // A connection that was paused works when it is used again.
        expect(await outcomeOf(httpFetch, server.url)).toBe(`200 ${body}`);
      }
      expect(server.connections).toHaveLength(framing === "close" ? 4 : 2);
    },
  );

  test("what came before a stream broke is read first, then the failure", async () => {
    await using server = startRawServer((connection) => {
      send(connection, CHUNKED_HEAD + chunk("half"));
      connection.socket.end();
    });
    const response = await createHttpFetch()(server.url, requestOf());
    await server.until(() => server.connections[0]!.isClosed);
    const reader = response.body!.getReader();
    expect(Buffer.from((await reader.read()).value!).toString()).toBe("half");
    const failure = await reader.read().catch((error: unknown) => error);
    expect(codeOf(failure)).toBe("CONNECTION_CLOSED");
  });

  test("an abort before the call sends nothing", async () => {
    await using server = startRawServer(() => undefined);
    const reason = new Error("gone");
    const call = createHttpFetch()(server.url, requestOf({ signal: AbortSignal.abort(reason) }));
    expect(await call.catch((error: unknown) => error)).toBe(reason);
    expect(server.connections).toHaveLength(0);
  });

  test("an abort while the connection opens sends nothing", async () => {
    await using server = startRawServer(() => undefined);
    const controller = new AbortController();
    const call = createHttpFetch()(server.url, requestOf({ signal: controller.signal }));
    controller.abort("gone");
    expect(await call.catch((error: unknown) => error)).toBe("gone");
    await server.until(() => server.connections[0]?.isClosed === true);
    expect(server.connections[0]!.received).toBe("");
  });

  test.each(["", "HTTP/1.1 200 OK\r\nconte", "HTTP/1.1 200 OK\r\n\r\nhalf"])(
    "an abort behind %j drops the connection at once and rejects with the reason",
    async (begun) => {
      const controller = new AbortController();
      const asked = Promise.withResolvers<void>();
      await using server = startRawServer((connection) => {
        send(connection, begun);
        asked.resolve();
      });
      const call = createHttpFetch()(server.url, requestOf({ signal: controller.signal }));
      const reading = call.then((response) => response.text());
      reading.catch(() => undefined);
      await asked.promise;
      if (begun.includes("half")) await call;
      controller.abort("gone");
      expect(await reading.catch((error: unknown) => error)).toBe("gone");
      await server.until(() => server.connections[0]!.isClosed);
    },
  );

  test("an abort in mid-stream fails the read that waits, and drops what lies unread", async () => {
    const controller = new AbortController();
    await using server = startRawServer((connection) =>
      send(connection, CHUNKED_HEAD + chunk("a")),
    );
    const httpFetch = createHttpFetch();
    const response = await httpFetch(server.url, requestOf({ signal: controller.signal }));
    const reader = response.body!.getReader();
    await reader.read();
    const waiting = reader.read().catch((error: unknown) => error);
    controller.abort("gone");
    expect(await waiting).toBe("gone");
    await server.until(() => server.connections[0]!.isClosed);
  });

  test("an abort behind the end of the response changes nothing", async () => {
    const controller = new AbortController();
    await using server = startRawServer((connection) => send(connection, answerOf("ok")));
    const httpFetch = createHttpFetch();
    const response = await httpFetch(server.url, requestOf({ signal: controller.signal }));
    controller.abort();
    expect(await response.text()).toBe("ok");
    expect(await outcomeOf(httpFetch, server.url)).toBe("200 ok");
    expect(server.connections).toHaveLength(1);
  });

  test("cancelling a stream drops its connection at once", async () => {
    await using server = startRawServer((connection) =>
      send(connection, CHUNKED_HEAD + chunk("a")),
    );
    const response = await createHttpFetch()(server.url, requestOf());
    await response.body!.cancel();
    await server.until(() => server.connections[0]!.isClosed);
  });

  test("an answer that drips in byte by byte is read", async () => {
    const answer = `${CHUNKED_HEAD}${chunk("hello")}${chunk(" world")}0\r\n\r\n`;
    await using server = startRawServer((connection) => {
      let at = 0;
      const drip = () => {
        send(connection, answer[at++]!);
        if (at < answer.length) setImmediate(drip);
      };
      drip();
    });
    const httpFetch = createHttpFetch();
    expect(await outcomeOf(httpFetch, server.url, "stream")).toBe("200 hello world");
    expect(await outcomeOf(httpFetch, server.url, "text")).toBe("200 hello world");
  });
});
