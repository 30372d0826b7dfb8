import { expect, test } from "bun:test";
import fc from "fast-check";
import { HttpError } from "../../src/providers/transport/http-error.ts";
import { parse } from "./http-parse.ts";
import { createHttpFetch, outcomeOf, rawServersOf, requestOf, send } from "./http-raw-server.ts";

const OK = "HTTP/1.1 200 OK\r\n";
const CODES = new Set(["MALFORMED_RESPONSE", "UNKNOWN_ENCODING", "CONNECTION_CLOSED"]);
const whole = (text: string, method?: string) =>
  parse([Buffer.from(text, "latin1")], "text", method);

/** What parsers are known to read in more than one way, in short. */
const FRAGMENTS = [
  OK,
  "HTTP/1.0 200 OK\r\n",
  "HTTP/1.1 100 Continue\r\n\r\n",
  "HTTP/1.1 204 No Content\r\n",
  "HTTP/1.1 304 Not Modified\r\n",
  "\r\n",
  "\n",
  "\r",
  "\0",
  " ",
  "\t",
  ":",
  ";",
  ",",
  "content-length: 5\r\n",
  "content-length: 5, 5\r\n",
  "Content-Length: 3\r\n",
  "content-length : 5\r\n",
  "content-length:\r\n 5\r\n",
  "transfer-encoding: chunked\r\n",
  "Transfer-Encoding: Chunked\r\n",
  "transfer-encoding: chunked, identity\r\n",
  "transfer-encoding:\x0bchunked\r\n",
  "connection: close\r\n",
  "connection: keep-alive\r\n",
  "content-encoding: gzip\r\n",
  "5\r\nhello\r\n",
  "5;a=b\r\nhello\r\n",
  "5;\nhello\r\n",
  "0\r\n\r\n",
  "0\r\nx: y\r\n\r\n",
  "ffffffffffffffff\r\n",
  "hello",
];

/** Bytes cut anywhere: the positions are fractions of what there is to cut. */
function cutAt(bytes: Buffer, positions: readonly number[]): Buffer[] {
  const points = [...new Set(positions.map((at) => Math.floor(at * bytes.length)))]
    .filter((at) => at > 0 && at < bytes.length)
    .sort((a, b) => a - b);
  return [...points, bytes.length].map((end, at) =>
    bytes.subarray(at === 0 ? 0 : points[at - 1], end),
  );
}

const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 20 });
const hostileBytes = fc.oneof(
  fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  fc
    .array(fc.oneof(fc.constantFrom(...FRAGMENTS), fc.string({ maxLength: 8 })), { maxLength: 16 })
    .map((parts) => Buffer.from(`${parts.join("")}`, "latin1")),
  fc
    .array(fc.constantFrom(...FRAGMENTS), { maxLength: 12 })
    .map((parts) => Buffer.from(`${OK}${parts.join("")}`, "latin1")),
);

test("whatever bytes come, cut anywhere, end in an answer or an HttpError, the same one as uncut", async () => {
  await fc.assert(
    fc.asyncProperty(
      hostileBytes,
      cuts,
      fc.constantFrom("text" as const, "stream" as const),
      fc.constantFrom("POST", "HEAD"),
      async (bytes, positions, as, method) => {
        const uncut = await parse([bytes], as, method);
        const { result, isReusable } = await parse(cutAt(bytes, positions), as, method);
        const isAnswer = /^[2-9]\d\d /.test(result);
        if (!isAnswer && !CODES.has(result)) {
          // Garbage that claims to be compressed fails in the decompression.
          expect(bytes.toString("latin1")).toContain("content-encoding");
          return;
        }
        expect(result).toBe(uncut.result);
        // A rest that comes later drops the connection by itself; it must never make one reusable.
        if (uncut.isReusable === true) expect(isReusable).toBe(true);
      },
    ),
    { numRuns: 3_000 },
  );
});

const payloads = fc.array(fc.uint8Array({ minLength: 1, maxLength: 60 }), { maxLength: 10 });
test("a valid answer, framed in any way and cut anywhere, is its payload, and the bytes behind it are nothing's", async () => {
  await fc.assert(
    fc.asyncProperty(
      payloads,
      fc.constantFrom("length", "chunks", "close"),
      fc.constantFrom("", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 E\r\nlink: a\r\n\r\n"),
      fc.constantFrom(
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison",
        "0\r\n\r\n",
        "\r\n",
      ),
      cuts,
      async (pieces, framing, interim, behind, positions) => {
        const texts = pieces.map((piece) => Buffer.from(piece).toString("hex"));
        const body = texts.join("");
        const chunks = texts.map((text) => `${text.length.toString(16)};e=1\r\n${text}\r\n`);
        const answer = {
          length: `${OK}content-length: ${body.length}\r\n\r\n${body}`,
          chunks: `${OK}transfer-encoding: chunked\r\n\r\n${chunks.join("")}0\r\nt: 1\r\n\r\n`,
          close: `${OK}\r\n${body}`,
        }[framing]!;
        const rest = framing === "close" ? "" : behind;
        const bytes = Buffer.from(`${interim}${answer}${rest}`, "latin1");
        const { result, isReusable } = await parse(cutAt(bytes, positions), "text");
        expect(result).toBe(`200 ${body}`);
        if (framing === "close") expect(isReusable).toBe(false);
        else if (rest === "") expect(isReusable).toBe(true);
      },
    ),
    { numRuns: 1_000 },
  );
});

test.each([
  ["two lengths that differ", `${OK}content-length: 3\r\ncontent-length: 5\r\n\r\nabcde`],
  ["two lengths in one field", `${OK}content-length: 3, 5\r\n\r\nabcde`],
  ["a folded length", `${OK}content-length:\r\n 5\r\n\r\nabcde`],
  ["a folded encoding", `${OK}transfer-encoding:\r\n chunked\r\ncontent-length: 3\r\n\r\nabc`],
  ["an encoding behind a space", `${OK}transfer-encoding : chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n`],
  ["an encoding behind a vertical tab", `${OK}transfer-encoding:\x0bchunked\r\n\r\nabc`],
  ["an encoding behind a NUL", `${OK}transfer-encoding: chunked\0\r\n\r\nabc`],
  ["a field behind a lone CR", `${OK}a: b\rtransfer-encoding: chunked\r\n\r\nabc`],
  ["a field behind a lone LF", `${OK}a: b\ncontent-length: 3\r\n\r\nabc`],
  ["a head that ends in LF LF", "HTTP/1.1 200 OK\ncontent-length: 3\n\nabc"],
  [
    "a lone CR in a chunk extension",
    `${OK}transfer-encoding: chunked\r\n\r\n3;a\rb\r\nabc\r\n0\r\n\r\n`,
  ],
  ["a lone LF behind a chunk's data", `${OK}transfer-encoding: chunked\r\n\r\n3\r\nabc\n0\r\n\r\n`],
  [
    "a chunk size beyond 64 bits",
    `${OK}transfer-encoding: chunked\r\n\r\n10000000000000003\r\nabc`,
  ],
  ["a lone LF in a trailer", `${OK}transfer-encoding: chunked\r\n\r\n0\r\na: b\n\r\n`],
])("an answer with %s is refused, and its connection closed", async (_what, answer) => {
  await using server = rawServersOf("http")((connection) => send(connection, answer));
  expect(await outcomeOf(createHttpFetch(), server.url)).toBe("MALFORMED_RESPONSE");
  await server.until(() => server.connections[0]!.isClosed);
});

test.each([
  ["the encoding twice", `${OK}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n`],
  ["another encoding last", `${OK}transfer-encoding: chunked, identity\r\n\r\n`],
])("an answer with %s is refused", async (_what, answer) => {
  expect((await whole(answer)).result).toBe("UNKNOWN_ENCODING");
});

test.each([
  ["a length of 0 and a body", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\npoison"],
  ["204 with a body", "HTTP/1.1 204 No\r\ncontent-length: 6\r\n\r\npoison"],
  [
    "304 with chunks",
    "HTTP/1.1 304 No\r\ntransfer-encoding: chunked\r\n\r\n6\r\npoison\r\n0\r\n\r\n",
  ],
  [
    "a length and chunks",
    `${OK}content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\npoison`,
  ],
  [
    "a second answer behind it",
    `${OK}content-length: 0\r\n\r\n${OK}content-length: 6\r\n\r\npoison`,
  ],
])("what follows an answer with %s is not taken for the next one's", async (_what, answer) => {
  await using server = rawServersOf("https")((connection) => send(connection, answer));
  const httpFetch = createHttpFetch();
  for (let time = 1; time <= 3; time++) {
    expect(await outcomeOf(httpFetch, server.url)).not.toContain("poison");
    expect(server.connections).toHaveLength(time);
  }
  await server.until(() => server.connections.every((one) => one.isClosed));
});

test("a server that sends interim answers or head bytes without end is refused within a bound", async () => {
  for (const endless of ["HTTP/1.1 100 Continue\r\n\r\n", "a: b\r\n"]) {
    await using server = rawServersOf("http")((connection) => {
      send(connection, endless.startsWith("HTTP") ? "" : OK);
      const more = () => {
        if (connection.isClosed) return;
        send(connection, endless.repeat(100));
        setImmediate(more);
      };
      more();
    });
    const error = await createHttpFetch()(server.url, requestOf()).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(HttpError);
    expect(error.code).toBe("MALFORMED_RESPONSE");
    await server.until(() => server.connections[0]!.isClosed);
  }
});
