import { expect, test } from "bun:test";
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import fc from "fast-check";
import { MAX_CHUNK_LINE_BYTES } from "../../src/providers/transport/chunked-decoder.ts";
import { Exchange, MAX_HEAD_BYTES } from "../../src/providers/transport/exchange.ts";
import type { ProviderResponse } from "../../src/providers/transport/provider-response.ts";
import { parse } from "./http-parse.ts";
import { requestOf } from "./http-raw-server.ts";

const bytesOf = (text: string) => Buffer.from(text, "latin1");
const whole = (text: string, method?: string) => parse([bytesOf(text)], "text", method);

const CHUNKED = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const utf8 = (text: string) => Buffer.from(text).toString("latin1");

const GOOD: [string, string, string, boolean][] = [
  ["a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "200 hello", true],
  ["no reason", "HTTP/1.1 200\r\ncontent-length:5\r\n\r\nhello", "200 hello", true],
  ["an empty body", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "200 ", true],
  [
    "the same length twice",
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nContent-Length: 2\r\n\r\nhi",
    "200 hi",
    true,
  ],
  [
    "connection: close",
    "HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 2\r\n\r\nhi",
    "200 hi",
    false,
  ],
  ["HTTP/1.0", "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", "200 hi", false],
  [
    "HTTP/1.0 kept alive",
    "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nhi",
    "200 hi",
    true,
  ],
  ["a body until the end", "HTTP/1.1 200 OK\r\n\r\nhello", "200 hello", false],
  [
    "100 and 103 before it",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.1 201 OK\r\ncontent-length: 2\r\n\r\nhi",
    "201 hi",
    true,
  ],
  ["chunks", `${CHUNKED}5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\n\r\n`, "200 hello world", true],
  [
    "chunk extensions, padding, case",
    `${CHUNKED}000A;x="y;z"\r\n0123456789\r\nb  \r\n0123456789a\r\n0 ;q\r\n\r\n`,
    "200 01234567890123456789a",
    true,
  ],
  ["trailers", `${CHUNKED}2\r\nhi\r\n0\r\nx-a: b\r\nx-c: d\r\n\r\n`, "200 hi", true],
  [
    "both framings: chunks count",
    `HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n`,
    "200 hi",
    false,
  ],
  [
    "a byte order mark",
    `HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n\xef\xbb\xbfhi`,
    "200 hi",
    true,
  ],
  [
    "characters of several bytes",
    `${CHUNKED}9\r\n${utf8("äöü漢")}\r\n0\r\n\r\n`,
    "200 äöü漢",
    true,
  ],
  [
    "a leftover",
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n",
    "200 hi",
    false,
  ],
  ["a leftover behind chunks", `${CHUNKED}2\r\nhi\r\n0\r\n\r\nX`, "200 hi", false],
  [
    "a tiny server's odd fields",
    "HTTP/1.1 404 \r\nx:\r\nServer: \xe4\r\ncontent-length: 0\r\n\r\n",
    "404 ",
    true,
  ],
];

test.each(GOOD)("a response with %s is read, whole", async (_what, text, result, isReusable) => {
  expect(await whole(text)).toEqual({ result, isReusable });
});

test.each(GOOD)("a response with %s is the same cut at any byte", async (what, text, result) => {
  const bytes = bytesOf(text);
  for (let cut = 1; cut < bytes.length; cut++) {
    for (const as of ["text", "stream"] as const) {
      const outcome = await parse([bytes.subarray(0, cut), bytes.subarray(cut)], as);
      expect(outcome.result).toBe(result);
      // A leftover may come after the connection was handed back, which then drops it.
      if (!what.includes("leftover")) {
        expect(outcome.isReusable).toBe((await whole(text)).isReusable);
      }
    }
  }
});

test("a response cut at any set of points, or into single bytes, is the same", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.string({ unit: "binary", minLength: 1, maxLength: 40 }), { maxLength: 12 }),
      fc.array(fc.nat(2_000), { maxLength: 30 }),
      fc.boolean(),
      fc.constantFrom("text" as const, "stream" as const),
      async (payloads, cuts, isSingle, as) => {
        const chunks = payloads.map((payload) => {
          const text = utf8(payload);
          return `${text.length.toString(16)};x=1\r\n${text}\r\n`;
        });
        const bytes = bytesOf(`${CHUNKED}${chunks.join("")}0\r\nt: 1\r\n\r\n`);
        const points = isSingle
          ? Array.from(bytes, (_, index) => index)
          : [...new Set(cuts.map((cut) => cut % bytes.length))].sort((a, b) => a - b);
        const pieces = [...points, bytes.length].map((end, at) =>
          bytes.subarray(at === 0 ? 0 : points[at - 1], end),
        );
        const expected = new TextDecoder().decode(Buffer.from(payloads.join("")));
        const filled = pieces.filter((piece) => piece.length > 0);
        expect(await parse(filled, as)).toEqual({ result: `200 ${expected}`, isReusable: true });
      },
    ),
    { numRuns: 300 },
  );
});

test.each([204, 304])("a response of status %d has no body, whatever it says", async (status) => {
  const text = `HTTP/1.1 ${status} X\r\ncontent-length: 5\r\n\r\n`;
  expect(await whole(text)).toEqual({ result: `${status} `, isReusable: true });
});

test("the response to HEAD has no body", async () => {
  const text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
  expect(await whole(text, "HEAD")).toEqual({ result: "200 ", isReusable: true });
});

const OK = "HTTP/1.1 200 OK\r\n";
test.each([
  ["another protocol", "SSH-2.0-OpenSSH\r\n\r\n"],
  ["another version", "HTTP/2.0 200 OK\r\n\r\n"],
  ["HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n"],
  ["an invalid status", "HTTP/1.1 2x0 OK\r\n\r\n"],
  ["a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n"],
  ["a status below 100", "HTTP/1.1 099 OK\r\n\r\n"],
  ["nothing but a line end", "\r\n\r\n"],
  ["a switch of protocols", "HTTP/1.1 101 X\r\n\r\n"],
  ["a folded line", `${OK}a: b\r\n c\r\ncontent-length: 0\r\n\r\n`],
  ["a space before the colon", `${OK}content-length : 0\r\n\r\n`],
  ["no colon", `${OK}content-length\r\n\r\n`],
  ["no name", `${OK}: 0\r\n\r\n`],
  ["NUL in a value", `${OK}a: \0\r\n\r\n`],
  ["a lone CR in a value", `${OK}a: b\rcontent-length: 3\r\n\r\n`],
  ["a lone LF", `${OK}a: b\ncontent-length: 3\r\n\r\nabc`],
  ["lines that end in LF alone", "HTTP/1.1 200 OK\ncontent-length: 3\n\nabc"],
  ["two lengths", `${OK}content-length: 3\r\ncontent-length: 5\r\n\r\nabcde`],
  ["two lengths in a list", `${OK}content-length: 3, 5\r\n\r\nabcde`],
  ["a negative length", `${OK}content-length: -1\r\n\r\n`],
  ["a signed length", `${OK}content-length: +1\r\n\r\na`],
  ["a hexadecimal length", `${OK}content-length: 0x1\r\n\r\na`],
  ["an empty length", `${OK}content-length:\r\n\r\n`],
  ["an overflowing length", `${OK}content-length: 99999999999999999999\r\n\r\n`],
  ["a chunk without a size", `${CHUNKED}\r\nhi\r\n0\r\n\r\n`],
  ["a negative chunk size", `${CHUNKED}-2\r\nhi\r\n0\r\n\r\n`],
  ["a prefixed chunk size", `${CHUNKED}0x2\r\nhi\r\n0\r\n\r\n`],
  ["a chunk size with an underscore", `${CHUNKED}1_0\r\nhi\r\n0\r\n\r\n`],
  ["an overflowing chunk size", `${CHUNKED}ffffffffffffffffffff\r\nhi`],
  ["a size line that ends in LF", `${CHUNKED}2\nhi\r\n0\r\n\r\n`],
  ["an extension that ends in LF", `${CHUNKED}2;a\nhi\r\n0\r\n\r\n`],
  ["a chunk longer than its size", `${CHUNKED}2\r\nhiX\r\n0\r\n\r\n`],
  ["an endless size line", `${CHUNKED}2;${"x".repeat(MAX_CHUNK_LINE_BYTES)}\r\nhi\r\n0\r\n\r\n`],
  ["endless trailers", `${CHUNKED}0\r\n${"a: b\r\n".repeat(20_000)}\r\n`],
  ["a head that is too large", `${OK}${"a: b\r\n".repeat(MAX_HEAD_BYTES / 6)}\r\n`],
  ["a head that never ends", `${OK}a: ${"b".repeat(MAX_HEAD_BYTES)}`],
  ["endless interim responses", "HTTP/1.1 100 C\r\n\r\n".repeat(17)],
])("a response with %s is malformed, whole or byte by byte", async (_what, text) => {
  expect(await whole(text)).toEqual({ result: "MALFORMED_RESPONSE", isReusable: undefined });
  if (text.length > 1_000) return;
  const single = Array.from(bytesOf(text), (byte) => Buffer.from([byte]));
  expect((await parse(single, "stream")).result).toBe("MALFORMED_RESPONSE");
});

test("a head of just under the bound is read", async () => {
  const filling = `${OK}content-length: 0\r\na: `;
  const text = `${filling}${"b".repeat(MAX_HEAD_BYTES - filling.length)}\r\n\r\n`;
  expect((await whole(text)).result).toBe("200 ");
});

test.each(["gzip, chunked", "chunked, chunked", "identity", "xchunked"])(
  "the transfer encoding %p is refused",
  async (encoding) => {
    const text = `${OK}transfer-encoding: ${encoding}\r\ncontent-length: 2\r\n\r\nhi`;
    expect((await whole(text)).result).toBe("UNKNOWN_ENCODING");
  },
);

test.each([
  ["a length", `${OK}content-length: 5\r\n\r\nhello`],
  ["chunks", `${CHUNKED}5\r\nhello\r\n0\r\n\r\n`],
])("a body with %s that ends early at any byte is a failure", async (_what, text) => {
  const bytes = bytesOf(text);
  for (let cut = 0; cut < bytes.length; cut++) {
    for (const as of ["text", "stream"] as const) {
      const outcome = await parse(cut === 0 ? [] : [bytes.subarray(0, cut)], as);
      expect(outcome).toEqual({ result: "CONNECTION_CLOSED", isReusable: undefined });
    }
  }
});

test.each([
  ["gzip", gzipSync("hello")],
  ["deflate", deflateSync("hello")],
  ["br", brotliCompressSync("hello")],
  ["zstd", zstdCompressSync("hello")],
] as const)("a body in %s is expanded, although none was asked for", async (encoding, body) => {
  const head = `${OK}content-encoding: ${encoding}\r\ncontent-length: ${body.length}\r\n\r\n`;
  for (const as of ["text", "stream"] as const) {
    const outcome = await parse([bytesOf(head), Buffer.from(body)], as);
    expect(outcome).toEqual({ result: "200 hello", isReusable: true });
  }
});

test("a body in an unknown encoding is refused", async () => {
  const text = `${OK}content-encoding: zip\r\ncontent-length: 2\r\n\r\nhi`;
  expect((await whole(text)).result).toBe("UNKNOWN_ENCODING");
});

test("the payloads of all chunks in one piece are handed on as one", async () => {
  const { promise, resolve, reject } = Promise.withResolvers<ProviderResponse>();
  const exchange = new Exchange("", requestOf(), {
    responded: resolve,
    failed: reject,
  });
  exchange.receive(bytesOf(CHUNKED));
  const reader = (await promise).body!.getReader();
  const first = reader.read();
  await null;
  exchange.receive(bytesOf("1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n4\r\ngh"));
  expect(Buffer.from((await first).value!).toString()).toBe("abcdefgh");
  exchange.receive(bytesOf("ij\r\n0\r\n\r\n"));
  expect(Buffer.from((await reader.read()).value!).toString()).toBe("ij");
  expect((await reader.read()).done).toBe(true);
});
