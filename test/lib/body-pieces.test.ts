import { afterAll, expect, test } from "bun:test";
import { jsonResponse } from "../../src/http/error-response.ts";
import { bodyInPieces } from "../../src/lib/body-pieces.ts";

let respond = (): Response => new Response();
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch() {
    // Only where an answer is waited for it matters how its body begins.
    await new Promise((resolve) => setImmediate(resolve));
    return respond();
  },
});
afterAll(() => server.stop(true));

/** The body of an answer, and the sizes of the HTTP chunks that it came in; none where it has a length. */
async function chunksOf(response: () => Response): Promise<{ body: Buffer; sizes: number[] }> {
  respond = response;
  const { promise, resolve } = Promise.withResolvers<Buffer>();
  const received: Buffer[] = [];
  await Bun.connect({
    hostname: "127.0.0.1",
    port: server.port!,
    socket: {
      open: (socket) => void socket.write("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
      data: (_, data) => void received.push(Buffer.from(data)),
      close: () => resolve(Buffer.concat(received)),
    },
  });
  const answer = await promise;
  const headEnd = answer.indexOf("\r\n\r\n") + 4;
  const isChunked = /transfer-encoding: chunked/i.test(answer.toString("latin1", 0, headEnd));
  if (!isChunked) return { body: answer.subarray(headEnd), sizes: [] };
  const sizes: number[] = [];
  const pieces: Buffer[] = [];
  for (let at = headEnd; ; ) {
    const lineEnd = answer.indexOf("\r\n", at);
    const size = Number.parseInt(answer.toString("latin1", at, lineEnd), 16);
    if (size === 0) return { body: Buffer.concat(pieces), sizes };
    sizes.push(size);
    pieces.push(answer.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}

test.each([0, 1, 12_288, 12_289, 100_000, 262_144, 262_145, 600_000])(
  "a body of %d bytes arrives as it was, and begins with no piece above 16 KB",
  async (length) => {
    const bytes = Uint8Array.from({ length }, (_, at) => at % 251);
    const { body, sizes } = await chunksOf(() => new Response(bodyInPieces(bytes)));
    expect(body.equals(bytes)).toBeTrue();
    if (length > 12_288) expect(sizes[0]).toBeLessThan(16_384);
    expect(Buffer.from(await new Response(bodyInPieces(bytes)).bytes()).equals(bytes)).toBeTrue();
  },
);

test("a text is sent as the UTF-8 it is", async () => {
  const text = "äö€😀".repeat(5_000);
  expect(await new Response(bodyInPieces(text)).text()).toBe(text);
});

test.each(["x".repeat(40_000), "\u6587".repeat(6_000)])(
  "a large JSON answer leaves in pieces, whatever its characters take",
  async (value) => {
    const { body, sizes } = await chunksOf(() => jsonResponse({ value }));
    expect(sizes.length).toBeGreaterThan(1);
    for (const size of sizes) expect(size).toBeLessThan(16_384);
    expect(JSON.parse(body.toString())).toEqual({ value });
  },
);
