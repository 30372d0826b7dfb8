import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";
import { pageFaults, sourceFaults, sqlFaults, type WordingFault } from "./support/wording.ts";

const root = join(import.meta.dir, "..");

/** Texts and names that a marker matches although they are right, each with its reason. */
const EXCEPTIONS: ReadonlyMap<string, string> = new Map([
  ["nobody", "the account of the operating system"],
  ["place", "a member of a row that an SQL function reads"],
  ["reservesHalf", "exactly half of a limit"],
  ["what is left", "stored with refunds, and compared with stored ones"],
  [
    "This is the sandbox of the gateway, not a language model. It repeats what it is told, ",
    "an answer of the sandbox, whose tokens have a price",
  ],
]);

const PAGES = [
  "AGENTS.md",
  "CONTRIBUTING.md",
  "README.md",
  "SECURITY.md",
  "docs/**/*.md",
  "examples/**/README.md",
  "src/*/README.md",
];

async function faultsIn(
  patterns: readonly string[],
  faultsOf: (text: string, file: string) => WordingFault[],
): Promise<string[]> {
  const faults: string[] = [];
  for (const pattern of patterns) {
    for await (const file of new Glob(pattern).scan({ cwd: root })) {
      const text = await Bun.file(join(root, file)).text();
      for (const { line, words, text: whole } of faultsOf(text, file)) {
        if (!EXCEPTIONS.has(whole)) faults.push(`${file}:${line}: "${words}" in: ${whole}`);
      }
    }
  }
  return faults.sort();
}

test("comments, messages and names use plain words", async () => {
  const sources = ["{bin,release}/*.ts", "src/**/*.{ts,tsx}", "actors/**/*.ts", "db/**/*.ts"];
  expect(await faultsIn(sources, (text, file) => sourceFaults(file, text))).toEqual([]);
}, 60_000);

test("comments in SQL use plain words", async () => {
  expect(await faultsIn(["db/**/*.sql"], sqlFaults)).toEqual([]);
});

test("pages use plain words", async () => {
  expect(await faultsIn(PAGES, pageFaults)).toEqual([]);
});

test("a marker is found in a comment, a message, a name, a page and SQL", () => {
  const source = `/** Undefined where there is none. */
const told = "all at once";
`;
  expect(sourceFaults("a.ts", source).map(({ words }) => words)).toEqual([
    "where there",
    "told",
    "at once",
  ]);
  expect(pageFaults("It comes behind it.\n```\nbehind\n```").map(({ line }) => line)).toEqual([1]);
  expect(sqlFaults("-- for good\nSELECT 1 WHERE a = 1").map(({ line }) => line)).toEqual([1]);
});
