import type { AST } from "@eslint-community/regexpp";
import { RegExpParser } from "@eslint-community/regexpp";
import { RE2JS, RE2JSException } from "re2js";
import { type Detector, heldByLength, type LabelledSpan } from "./detector.ts";

export const MAX_PATTERN_CHARACTERS = 1_000;
/** Maximum instructions of a compiled pattern. They determine the cost of one character. */
const MAX_PROGRAM = 4_000;
/**
 * Maximum instructions times characters of a match. They determine the cost of screening one piece of a
 * stream.
 */
const MAX_PIECE_COST = 1_000_000;
/**
 * Longest time to find all matches, plus a time for each character. For some patterns, such as `a.*b|a`, the
 * search takes time quadratic in the length of the text.
 */
const MAX_SEARCH_MS = 50;
const MAX_SEARCH_MS_A_CHARACTER = 0.01;
/** Searches times characters that never count as slow, even on a busy processor. */
const FREE_SEARCH = 200_000;
/** Instructions of a program that takes as long per character as the search for personal data. */
const USUAL_PROGRAM = 16;
const COST_WITHOUT_BOUND = 16;
/**
 * The longest match that is found as one match in streams. Also used for patterns without a maximum length.
 */
export const MAX_MATCH_CHARACTERS = 4_096;

/** The reason why a pattern is invalid or too expensive. */
export class PatternError extends Error {}

/**
 * A user-defined pattern. Testing it takes time linear in the length of the text
 * (https://github.com/google/re2).
 */
export class Pattern implements Detector {
  readonly #compiled: RE2JS;
  readonly heldFrom: Detector["heldFrom"];
  /** The maximum length of a match, in UTF-16 units. */
  readonly longest: number;
  readonly cost: number;
  readonly isIn: ((text: string) => boolean) | undefined;

  /** Compiles the pattern. Throws PatternError if it is invalid, too expensive, or matches an empty text. */
  constructor(source: string) {
    if (source.length > MAX_PATTERN_CHARACTERS) {
      throw new PatternError(`must not have more than ${MAX_PATTERN_CHARACTERS} characters`);
    }
    this.#compiled = compiled(source);
    const program = this.#compiled.programSize();
    if (program > MAX_PROGRAM) throw new PatternError("is too complex");
    if (this.#compiled.test("")) throw new PatternError("matches an empty text");
    const { shortest, longest } = lengthsOf(source);
    this.longest = Math.min(longest, MAX_MATCH_CHARACTERS);
    if (program * this.longest > MAX_PIECE_COST) throw new PatternError("is too complex");
    const least = this.longest === MAX_MATCH_CHARACTERS ? COST_WITHOUT_BOUND : 1;
    this.cost = Math.max(least, program / USUAL_PROGRAM);
    // An empty match does not count, so `test` is only exact if matches cannot be empty.
    this.isIn = shortest > 0 ? (text) => this.#compiled.test(text) : undefined;
    this.heldFrom = heldByLength(this.longest);
  }

  find(text: string, from: number): LabelledSpan[] {
    // Testing is much faster than finding positions.
    if (!this.#compiled.test(text)) return [];
    const spans: LabelledSpan[] = [];
    const matcher = this.#compiled.matcher(text);
    const untilMs = performance.now() + MAX_SEARCH_MS + text.length * MAX_SEARCH_MS_A_CHARACTER;
    let searched = 0;
    for (let at = from; at <= text.length && matcher.find(at); ) {
      const [start, end] = [matcher.start(), matcher.end()];
      if (end > start) spans.push({ start, end, label: "[REDACTED]" });
      at = Math.max(end, start + 1);
      searched += text.length;
      if (searched < FREE_SEARCH || performance.now() < untilMs || at >= text.length) continue;
      // Text that cannot be screened in time must be redacted.
      spans.push({ start: at, end: text.length, label: "[REDACTED]" });
      break;
    }
    return spans;
  }
}

function compiled(source: string): RE2JS {
  try {
    return RE2JS.compile(source);
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    throw new PatternError(`is not a valid RE2 pattern: ${error.message}`);
  }
}

interface Lengths {
  readonly shortest: number;
  /** Infinity if there is no limit. */
  readonly longest: number;
}

const UNKNOWN: Lengths = { shortest: 0, longest: Number.POSITIVE_INFINITY };

/**
 * Returns the lengths of matches in UTF-16 units. Returns UNKNOWN if the pattern uses syntax that only RE2
 * has.
 */
function lengthsOf(source: string): Lengths {
  const flags = /^\(\?[imsU]+\)/.exec(source)?.[0] ?? "";
  try {
    const parsed = new RegExpParser({ ecmaVersion: 2025 }).parsePattern(
      source.slice(flags.length).replaceAll("(?P<", "(?<"),
      undefined,
      undefined,
      { unicode: true },
    );
    return lengthsOfAny(parsed.alternatives);
  } catch {
    return UNKNOWN;
  }
}

function lengthsOfAny(alternatives: readonly AST.Alternative[]): Lengths {
  const each = alternatives.map(({ elements }) => {
    const lengths = elements.map(lengthsOfOne);
    return {
      shortest: lengths.reduce((sum, { shortest }) => sum + shortest, 0),
      longest: lengths.reduce((sum, { longest }) => sum + longest, 0),
    };
  });
  return {
    shortest: Math.min(...each.map(({ shortest }) => shortest)),
    longest: Math.max(...each.map(({ longest }) => longest)),
  };
}

function lengthsOfOne(element: AST.Element): Lengths {
  switch (element.type) {
    case "Assertion":
      return { shortest: 0, longest: 0 };
    case "Quantifier": {
      const { shortest, longest } = lengthsOfOne(element.element);
      const most = longest === 0 ? 0 : longest * element.max;
      return { shortest: shortest * element.min, longest: most };
    }
    case "Group":
    case "CapturingGroup":
      return lengthsOfAny(element.alternatives);
    case "Backreference":
      return UNKNOWN;
    default:
      // A character can have two UTF-16 units.
      return { shortest: 1, longest: 2 };
  }
}
