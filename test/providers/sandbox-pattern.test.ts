import { expect, test } from "bun:test";
import { patternExample } from "../../src/sandbox/pattern-example.ts";

test("a pattern's example matches it, and grows to the length asked for where it can", () => {
  const patterns = [
    "",
    "^$",
    "abc",
    "a|b",
    "^\\w+@\\w+\\.com$",
    "[a-c-]{2,}",
    "[-a]",
    "[\\]x]",
    "[^\\n]",
    "[^0-9A-Za-z]",
    "\\x41\\u0042\\u{43}",
    "\\bword\\b",
    "^(?!no)yes",
    "^\\S+\\s\\D\\d$",
    "a{0}",
    "a{2}b{,3}",
    "x*?y+?",
    "(a|b)(?:c|d)\\1",
    "^\\/path\\/\\d+$",
    "\\p{Nd}{3}",
    "^[\\w.]+$",
    "😀+",
    "[😀-😂]",
    "\\cA".slice(2),
  ];
  for (const pattern of patterns) {
    const flags = /\{,|\\b\]/.test(pattern) ? "" : "u";
    for (const length of [0, 10]) {
      const example = patternExample(pattern, length, 100);
      expect(example).toBeDefined();
      expect([pattern, new RegExp(pattern, flags).test(example ?? "")]).toEqual([pattern, true]);
    }
  }
  expect(patternExample("^[ab]{1,9}x$", 8, 100)).toHaveLength(8);
  expect(patternExample("^[ab]{1,3}$", 8, 100)).toHaveLength(3);
});

test.each([
  "(",
  "[",
  "a)",
  "(?",
  "(?<",
  "\\",
  "[]",
  "\\u{110000}",
  "*".repeat(9),
  `${"(".repeat(99)}${")".repeat(99)}`,
])(
  "the pattern %p, which cannot be read, gives no example or some, but never throws",
  (pattern) => {
    expect(["string", "undefined"]).toContain(typeof patternExample(pattern, 0, 100));
  },
);
