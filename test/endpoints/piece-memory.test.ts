import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { PieceMemory } from "../../src/http/multipart.ts";
import { JsonLinesCheck } from "../../src/jobs/files/json-lines-check.ts";

describe("the memory of a piece", () => {
  test("is free when all its bytes were used, in whatever parts and order, and not before", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 1 }), (lengths) => {
        const piece = new Uint8Array(lengths.reduce((sum, length) => sum + length, 0));
        const memory = new PieceMemory();
        memory.track(piece);
        let end = 0;
        const parts = lengths.map((length) => {
          end += length;
          return piece.subarray(end - length, end);
        });
        const order = parts.toSorted((a, b) => a.byteLength - b.byteLength);
        for (const part of order) {
          expect(piece.byteLength).toBeGreaterThan(0);
          memory.release(part);
        }
        expect(piece.byteLength).toBe(0);
      }),
    );
  });

  test("stays where it is not the piece's alone, or was never lent", () => {
    const memory = new PieceMemory();
    const half = new Uint8Array(10).subarray(0, 5);
    memory.track(half);
    memory.release(half);
    const foreign = new Uint8Array(10);
    memory.release(foreign);
    expect([half.byteLength, foreign.byteLength]).toEqual([5, 10]);
  });
});

test("a line that goes over several pieces is checked as it was, though each is used again at once", () => {
  const line = `${JSON.stringify({ messages: ["x".repeat(1_000)] })}\n`;
  const lines: unknown[] = [];
  const check = new JsonLinesCheck((value) => {
    lines.push(value);
    return undefined;
  });
  const piece = Buffer.alloc(300);
  for (let start = 0; start < line.length; start += piece.byteLength) {
    const bytes = piece.write(line.slice(start, start + piece.byteLength), "latin1");
    check.write(piece.subarray(0, bytes));
    piece.fill(0);
  }
  check.end();
  expect(lines).toEqual([JSON.parse(line)]);
});
