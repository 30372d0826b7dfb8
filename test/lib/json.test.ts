import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  type JsonExcess,
  JsonScan,
  MAX_JSON_DEPTH,
  MAX_JSON_ELEMENTS,
  MAX_JSON_PARTS,
} from "../../src/lib/json.ts";

function scan(text: string, pieceBytes = text.length || 1): JsonExcess | undefined {
  const bytes = Buffer.from(text);
  const counted = new JsonScan();
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const excess = counted.push(bytes.subarray(at, at + pieceBytes));
    if (excess !== undefined) return excess;
  }
  return undefined;
}

const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
const members = (count: number) => `{${'"":1,'.repeat(count - 1)}"":1}`;
const elements = (count: number) => `[${"1,".repeat(count - 1)}1]`;

test.each([
  ["nesting at the bound", nested(MAX_JSON_DEPTH), undefined],
  ["nesting beyond it", nested(MAX_JSON_DEPTH + 1), "depth"],
  ["members, with their object, at the bound", members(MAX_JSON_PARTS - 1), undefined],
  ["members beyond it", members(MAX_JSON_PARTS), "parts"],
  ["empty objects beyond it", `[${"{},".repeat(MAX_JSON_PARTS - 1)}{}]`, "parts"],
  ["empty arrays at the bound", `[${"[],".repeat(MAX_JSON_PARTS - 2)}[]]`, undefined],
  ["elements at the bound", elements(MAX_JSON_ELEMENTS), undefined],
  ["elements beyond it", elements(MAX_JSON_ELEMENTS + 1), "elements"],
  ["the same with spaces", elements(MAX_JSON_ELEMENTS + 1).replaceAll(",", " ,\n"), "elements"],
  ["signs in a string", JSON.stringify('{["\\":,'.repeat(MAX_JSON_PARTS)), undefined],
  ["members of objects in arrays", `[${'{"a":1},'.repeat(99_998)}{"a":1}]`, undefined],
] as const)("%s", (_, text, expected) => {
  expect(scan(text)).toBe(expected);
  expect(scan(text, 65_537)).toBe(expected);
});

test("a text counts the same however it is cut", () => {
  fc.assert(
    fc.property(fc.json(), fc.integer({ min: 1, max: 7 }), (json, pieceBytes) => {
      const text = `[${`${json},`.repeat(500)}${nested(MAX_JSON_DEPTH - 1)}]`;
      expect(scan(text, pieceBytes)).toBe(scan(text));
    }),
    { numRuns: 50 },
  );
});
