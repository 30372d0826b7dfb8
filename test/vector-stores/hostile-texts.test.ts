import { expect, test } from "bun:test";
import { chunkText } from "../../src/documents/chunk-text.ts";
import { documentText } from "../../src/documents/document-text.ts";
import { pageText } from "../../src/documents/markup-text.ts";
import { searchWords } from "../../src/documents/search-words.ts";
import { DocumentFault } from "../../src/documents/text-sink.ts";

const CHARACTERS = 1_000_000;
/** Each takes milliseconds if its time is linear, and hours if it is quadratic. */
const MAX_MS = 20_000;

function repeated(unit: string): string {
  return unit.repeat(CHARACTERS / unit.length);
}

const TEXTS: readonly (readonly [name: string, text: string])[] = [
  ["blanks", `x${repeated(" ")}x`],
  ["tabs", `x${repeated("\t")}x`],
  ["control characters", `x${repeated("\u0001")}x`],
  ["no-break spaces", `x${repeated("\u00a0")}x`],
  ["blanks after a full stop", `a.${repeated(" ")}b`],
  ["blank lines", repeated(" \r\n")],
  ["full stops", repeated(".")],
  ["one word", repeated("a")],
  ["marks on one letter", `a${repeated("\u0316\u0301")}`],
  ["letters of unspaced scripts", repeated("ก")],
];

test.each(TEXTS)("a file of %s is read in a time linear in its length", async (_, text) => {
  const startedMs = performance.now();
  const read = await documentText(new TextEncoder().encode(text), false).catch((error: unknown) => {
    if (!(error instanceof DocumentFault)) throw error;
    return "";
  });
  const [first = ""] = chunkText(read, { maxTokens: 800, overlapTokens: 400 });
  expect(searchWords(first).length).toBeLessThanOrEqual(2 * first.length);
  expect(performance.now() - startedMs).toBeLessThan(MAX_MS);
});

test("a question of marks on one letter is cut into words in a time linear in its length", () => {
  const startedMs = performance.now();
  searchWords(`a${"\u0316\u0301".repeat(200_000)}`);
  expect(performance.now() - startedMs).toBeLessThan(MAX_MS);
  // No language has as many marks on one letter.
  expect(searchWords(`e${"\u0301".repeat(3)}`)).toBe("e");
});

test("a page with elements nested without bound is a fault of the document, and closing tags take no time for it", () => {
  const startedMs = performance.now();
  expect(() => pageText("<b>".repeat(CHARACTERS / 4) + "</i>".repeat(CHARACTERS / 4))).toThrow(
    DocumentFault,
  );
  expect(performance.now() - startedMs).toBeLessThan(MAX_MS);
  const flat = "<p>one<br><img src=a></p></b>".repeat(10_000);
  expect(pageText(flat)).toStartWith("one");
  expect(pageText(`${"<div>".repeat(1_000)}deep enough`)).toBe("deep enough");
});
