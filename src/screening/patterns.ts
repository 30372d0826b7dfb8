import type { AST } from "@eslint-community/regexpp";
import { RegExpParser } from "@eslint-community/regexpp";
import { RE2JS, RE2JSException } from "re2js";
import { type Detector, type Found, heldByLength } from "./detector.ts";

export const MAX_PATTERN_CHARACTERS = 1_000;
/** Instructions of a compiled pattern: what one character can cost. */
const MAX_PROGRAM = 4_000;
/** A longer match is not found as one in streams: where a pattern has no bound, this is the one. */
export const MAX_MATCH_CHARACTERS = 4_096;

/** Why a pattern is none that can be used. */
export class PatternError extends Error {}

/** A denied pattern, matched in time linear to the text, whatever it is (https://github.com/google/re2). */
export class Pattern implements Detector {
  readonly #compiled: RE2JS;
  readonly heldFrom: Detector["heldFrom"];
  /** The most characters of a match. */
  readonly longest: number;

  /** Throws PatternError. */
  constructor(source: string) {
    if (source.length > MAX_PATTERN_CHARACTERS) {
      throw new PatternError(`must not have more than ${MAX_PATTERN_CHARACTERS} characters`);
    }
    this.#compiled = compiled(source);
    if (this.#compiled.programSize() > MAX_PROGRAM) throw new PatternError("is too complex");
    if (this.#compiled.test("")) throw new PatternError("matches a text of no characters");
    this.longest = Math.min(longestMatch(source), MAX_MATCH_CHARACTERS);
    this.heldFrom = heldByLength(this.longest);
  }

  find(text: string, from: number): Found[] {
    // Much faster than the search for where it is.
    if (!this.#compiled.test(text)) return [];
    const found: Found[] = [];
    const matcher = this.#compiled.matcher(text);
    for (let at = from; at <= text.length && matcher.find(at); ) {
      const [start, end] = [matcher.start(), matcher.end()];
      if (end > start) found.push({ start, end, label: "[REDACTED]" });
      at = Math.max(end, start + 1);
    }
    return found;
  }
}

function compiled(source: string): RE2JS {
  try {
    return RE2JS.compile(source);
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    throw new PatternError(`is not a pattern of RE2: ${error.message}`);
  }
}

/** Infinity where there is no bound, or the pattern has what only RE2 knows. */
function longestMatch(source: string): number {
  const flags = /^\(\?[imsU]+\)/.exec(source)?.[0] ?? "";
  try {
    const parsed = new RegExpParser({ ecmaVersion: 2025 }).parsePattern(
      source.slice(flags.length).replaceAll("(?P<", "(?<"),
      undefined,
      undefined,
      { unicode: true },
    );
    return longestOfAll(parsed.alternatives);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

function longestOfAll(alternatives: readonly AST.Alternative[]): number {
  return Math.max(
    ...alternatives.map(({ elements }) =>
      elements.reduce((sum, element) => sum + longestOf(element), 0),
    ),
  );
}

/** In UTF-16 units: a character may have two. */
function longestOf(element: AST.Element): number {
  switch (element.type) {
    case "Assertion":
      return 0;
    case "Quantifier": {
      const once = longestOf(element.element);
      return once === 0 ? 0 : once * element.max;
    }
    case "Group":
    case "CapturingGroup":
      return longestOfAll(element.alternatives);
    case "Backreference":
      return Number.POSITIVE_INFINITY;
    default:
      return 2;
  }
}
