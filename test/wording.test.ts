import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";

const root = join(import.meta.dir, "..");

/**
 * Markers of a wording that readers had to decode: they hide who acts, or use a private word for a term of
 * the field. CONTRIBUTING.md has the glossary.
 */
const MARKERS =
  /\b(?:nobody|nobody's|somebody|whoever|all the same|(?:is|are|was|were) told|told of|for good|for ever|hears? of|heard of|anew|afresh|estates?|turnstiles?|patience|wish(?:es|ed)?|comes? of it)\b/i;

/** The account of that name, and what the sandbox says of itself. */
const EXCEPTIONS = new Set([
  '"nobody"',
  '"This is the sandbox of the gateway, not a language model. It repeats what it is told, "',
]);

async function filesOf(...patterns: string[]): Promise<string[]> {
  const files: string[] = [];
  for (const pattern of patterns) {
    for await (const file of new Glob(pattern).scan({ cwd: root })) files.push(file);
  }
  return files
    .filter((file) => !/node_modules|fixtures|migrations|wording\.test/.test(file))
    .sort();
}

/** Comments and strings of a source file, each with the number of its first line. */
function* texts(source: string): Generator<{ line: number; text: string }> {
  const lexed = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g;
  for (const { 0: text, index } of source.matchAll(lexed)) {
    yield { line: source.slice(0, index).split("\n").length, text };
  }
}

test("comments and messages use plain words", async () => {
  const faults: string[] = [];
  for (const file of await filesOf("src/**/*.{ts,tsx}", "actors/**/*.ts", "db/**/*.ts")) {
    for (const { line, text } of texts(await Bun.file(join(root, file)).text())) {
      if (EXCEPTIONS.has(text)) continue;
      const found = MARKERS.exec(text);
      if (found !== null) faults.push(`${file}:${line}: "${found[0]}"`);
    }
  }
  expect(faults).toEqual([]);
});

test("pages use plain words", async () => {
  const faults: string[] = [];
  for (const file of await filesOf("*.md", "docs/**/*.md")) {
    const lines = (await Bun.file(join(root, file)).text()).split("\n");
    for (const [index, line] of lines.entries()) {
      const found = MARKERS.exec(line);
      if (found !== null) faults.push(`${file}:${index + 1}: "${found[0]}"`);
    }
  }
  expect(faults).toEqual([]);
});
