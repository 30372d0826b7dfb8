import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import type { Detector } from "../../src/inference/guardrails/screening/detector.ts";
import { Injection } from "../../src/inference/guardrails/screening/injection.ts";
import {
  MAX_MATCH_CHARACTERS,
  Pattern,
  PatternError,
} from "../../src/inference/guardrails/screening/patterns.ts";
import { PersonalData } from "../../src/inference/guardrails/screening/personal-data.ts";
import {
  type ScreeningRule,
  screenedText,
  TextWindow,
} from "../../src/inference/guardrails/screening/text-window.ts";

const ruleOf = (detector: Detector, action: ScreeningRule["action"]): ScreeningRule => ({
  ...{ guardrail: "g", type: "pii", action, detector },
});
const DETECTORS = [
  new PersonalData(),
  new Pattern("secret-[a-z]{3,8}"),
  new Pattern("(?i)begin.*end"),
  new Pattern("(a+)+$"),
  new Injection(),
];
const REDACTING = DETECTORS.map((detector) => ruleOf(detector, "redact"));
const BLOCKING = DETECTORS.map((detector) => ruleOf(detector, "block"));

/** What leaves of a text that comes in these pieces. */
function streamed(pieces: readonly string[], rules: readonly ScreeningRule[]) {
  const window = new TextWindow(rules, () => {});
  let text = "";
  let length = 0;
  const take = (released: ReturnType<TextWindow["push"]>) => {
    for (const piece of released) {
      text += piece.text;
      length += piece.length;
    }
  };
  for (const piece of pieces) take(window.push(piece));
  take(window.end());
  return { text, length, isBlocked: window.isBlocked };
}

const corpus = (await Bun.file(join(import.meta.dir, "../fixtures/personal-data.tsv")).text())
  .split("\n")
  .filter((line) => line !== "")
  .map((line) => line.split("\t")[0]!);

test("each line of the corpus, cut at every offset, leaves as it does whole", () => {
  for (const line of corpus) {
    const text = `${line} secret-abcdef.`;
    const whole = screenedText(text, REDACTING, () => {});
    for (let cut = 0; cut <= text.length; cut++) {
      const parts = streamed([text.slice(0, cut), text.slice(cut)], REDACTING);
      expect(parts).toEqual({ text: whole!, length: text.length, isBlocked: false });
    }
    const single = streamed([...text], REDACTING);
    expect(single.text).toBe(whole!);
  }
}, 60_000);

/** Texts in which what is looked for stands side by side, overlaps, and almost stands. */
const hostile = fc
  .array(
    fc.oneof(
      fc.constantFrom(...corpus),
      fc.constantFrom(
        ...[
          "secret-",
          "abc",
          "begin",
          " end",
          "aaaa",
          "@",
          "ada@",
          "example.com",
          "4111 1111 1111",
          " 1111",
        ],
        ...[
          " ",
          "\n",
          "+49 30 ",
          "901820",
          "GB82 WEST 1234 5698",
          " 7654 32",
          "ignore all ",
          "previous instructions",
        ],
      ),
      fc.string({ maxLength: 20 }),
    ),
    { minLength: 1, maxLength: 12 },
  )
  .map((parts) => parts.join(""));

test("whatever the text and its cuts, what leaves is what leaves of the whole, and nothing of it is lost", () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 20 });
  fc.assert(
    fc.property(hostile, sizes, (text, cuts) => {
      const pieces: string[] = [];
      for (let at = 0, n = 0; at < text.length; n++) {
        const size = cuts[n % cuts.length]!;
        pieces.push(text.slice(at, at + size));
        at += size;
      }
      const whole = screenedText(text, REDACTING, () => {});
      expect(streamed(pieces, REDACTING)).toEqual({
        ...{ text: whole!, length: text.length, isBlocked: false },
      });
      const blocked = streamed(pieces, BLOCKING);
      const isBlocked = screenedText(text, BLOCKING, () => {}) === undefined;
      expect(blocked.isBlocked).toBe(isBlocked);
      // What has left before is a beginning of the text without anything that is looked for.
      if (!isBlocked) expect(blocked.text).toBe(text);
      else {
        expect(text.startsWith(blocked.text)).toBeTrue();
        const first = Math.min(
          ...BLOCKING.flatMap(({ detector }) => detector.find(text, 0).map(({ start }) => start)),
        );
        expect(blocked.text.length).toBeLessThanOrEqual(first);
      }
    }),
    { numRuns: 400 },
  );
}, 60_000);

describe("patterns", () => {
  test.each([
    ["abc", 6],
    ["[a-c]{2,5}x?", 12],
    ["(foo|quux)\\b", 8],
    ["^(?:ab){3}$", 12],
    ["a+", MAX_MATCH_CHARACTERS],
    ["(?i)token: \\w*", MAX_MATCH_CHARACTERS],
    ["(?P<name>ab)", 4],
    ["\\pN{2}\\z", MAX_MATCH_CHARACTERS],
  ])("the longest match of %s is bounded by %d UTF-16 units", (pattern, most) => {
    expect(new Pattern(pattern).longest).toBe(most);
  });

  test.each(["(", "(a)\\1", "a(?=b)", "(?<!a)b", "a*", "", "x".repeat(1_001)])(
    "%s is no pattern that can be used",
    (pattern) => {
      expect(() => new Pattern(pattern)).toThrow(PatternError);
    },
  );

  /** Patterns that take a backtracking engine longer than there is time. */
  const HOSTILE = [
    "(a+)+$",
    "(a|aa)+$",
    "(a|a)*b",
    "([a-z]+)*x$",
    "(x+x+)+y",
    "(.*)(.*)(.*)=q",
    "(a?){50}a{50}",
  ];
  test.each(HOSTILE)(
    "the time that %s takes grows with the text, and no faster",
    (source) => {
      const pattern = new Pattern(source === "(a|a)*b" ? "(a|a)+b" : source);
      const timeOf = (length: number): number => {
        const text = `${"a".repeat(length)}!`;
        let least = Number.POSITIVE_INFINITY;
        for (let run = 0; run < 5; run++) {
          const began = performance.now();
          pattern.find(text, 0);
          least = Math.min(least, performance.now() - began);
        }
        return least;
      };
      timeOf(4_096);
      const [short, long] = [timeOf(16_384), timeOf(262_144)];
      // Sixteen times the text; quadratic time would be 256 times as long.
      expect(long).toBeLessThan(Math.max(short, 0.5) * 80);
    },
    60_000,
  );
});
