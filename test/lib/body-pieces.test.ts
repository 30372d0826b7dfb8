import { expect, test } from "bun:test";
import { jsonResponse } from "../../src/http/json-response.ts";
import { bodyInPieces } from "../../src/lib/body-pieces.ts";

test.each([0, 1, 12_288, 12_289, 100_000])(
  "a body of %d bytes arrives as it was, in no piece above 16 KB",
  async (length) => {
    const bytes = Uint8Array.from({ length }, (_, at) => at % 251);
    const pieces: Uint8Array[] = [];
    for await (const piece of new Response(bodyInPieces(bytes)).body ?? []) pieces.push(piece);
    expect(Buffer.concat(pieces).equals(bytes)).toBeTrue();
    for (const piece of pieces) expect(piece.length).toBeLessThan(16_384);
  },
);

test("a text is sent as the UTF-8 it is", async () => {
  const text = "äö€😀".repeat(5_000);
  expect(await new Response(bodyInPieces(text)).text()).toBe(text);
});

test.each(["x".repeat(40_000), "\u6587".repeat(6_000)])(
  "a large JSON answer leaves in pieces, whatever its characters take",
  async (value) => {
    const pieces: Uint8Array[] = [];
    for await (const piece of jsonResponse({ value }).body ?? []) pieces.push(piece);
    expect(pieces.length).toBeGreaterThan(1);
    for (const piece of pieces) expect(piece.length).toBeLessThan(16_384);
    expect(JSON.parse(Buffer.concat(pieces).toString())).toEqual({ value });
  },
);
