import { expect, test } from "bun:test";
import { JsonEnd } from "../../src/inference/endpoints/messages/json-end.ts";

const NESTED = '{"a\\\\":["}",{"b":"\\"]{"}],"c":"\\\\\\"","d":{}}';

function endOf(...pieces: readonly string[]): boolean {
  const end = new JsonEnd();
  for (const piece of pieces) end.take(piece);
  return end.isReached;
}

test("the end is found where the JSON is whole, and nowhere before", () => {
  JSON.parse(NESTED);
  for (let length = 0; length < NESTED.length; length++) {
    expect(endOf(NESTED.slice(0, length))).toBe(false);
  }
  expect(endOf(NESTED)).toBe(true);
});

test("the end is found whatever pieces the JSON comes in", () => {
  expect(endOf(...NESTED)).toBe(true);
  for (let cut = 0; cut < NESTED.length; cut++) {
    expect(endOf(NESTED.slice(0, cut), "", NESTED.slice(cut))).toBe(true);
    expect(endOf(NESTED.slice(0, cut), NESTED.slice(cut, -1))).toBe(false);
  }
});
