import { type AST, RegExpParser } from "@eslint-community/regexpp";

/** Longest pattern that is parsed, because parsing nested groups takes quadratic time. */
const MAX_PATTERN_CHARACTERS = 512;
/** Characters to try for character classes that name no single character, such as `\w` or `[^abc]`. */
const COMMON_CHARACTERS = "a0A-_ .b1B/é";

/**
 * Returns a text that matches an ECMAScript pattern, with at least `minLength` characters if its quantifiers
 * allow that many. Returns undefined for an invalid pattern, or if the text would exceed `maxLength`. The
 * pattern is parsed and never run, because matching a hostile pattern can take exponential time. The text can
 * therefore violate look-arounds and word boundaries.
 */
export function patternExample(
  pattern: string,
  minLength: number,
  maxLength: number,
): string | undefined {
  if (pattern.length > MAX_PATTERN_CHARACTERS) return undefined;
  const parsed = parse(pattern, true) ?? parse(pattern, false);
  if (parsed === undefined) return undefined;
  const shortest = new ExampleWriter(parsed.flags, maxLength, 0);
  if (!shortest.writeFirst(parsed.alternatives)) return undefined;
  if (shortest.text.length >= minLength) return shortest.text;
  const longer = new ExampleWriter(parsed.flags, maxLength, minLength - shortest.text.length);
  return longer.writeFirst(parsed.alternatives) ? longer.text : shortest.text;
}

interface ParsedPattern {
  readonly alternatives: readonly AST.Alternative[];
  readonly flags: "u" | "";
}

/** Returns the parsed pattern, or undefined if the syntax of the mode does not allow it. */
function parse(pattern: string, unicode: boolean): ParsedPattern | undefined {
  try {
    const { alternatives } = new RegExpParser().parsePattern(pattern, 0, pattern.length, {
      unicode,
    });
    return { alternatives, flags: unicode ? "u" : "" };
  } catch {
    return undefined;
  }
}

/** Writes the text of a parsed pattern, always with the first of several alternatives. */
class ExampleWriter {
  text = "";
  readonly #flags: "u" | "";
  readonly #maxLength: number;
  readonly #captures = new Map<AST.CapturingGroup, string>();
  /** Number of characters that repetitions beyond their minimum still have to add. */
  #missing: number;

  constructor(flags: "u" | "", maxLength: number, missing: number) {
    this.#flags = flags;
    this.#maxLength = maxLength;
    this.#missing = missing;
  }

  /** Writes the first alternative. Returns false if it has no text of at most `maxLength` characters. */
  writeFirst([first]: readonly AST.Alternative[]): boolean {
    return first?.elements.every((element) => this.#write(element)) ?? false;
  }

  #write(element: AST.Element): boolean {
    switch (element.type) {
      case "Character":
        return this.#append(String.fromCodePoint(element.value));
      case "CharacterSet":
        return this.#appendOneOf(element.raw, [...COMMON_CHARACTERS]);
      case "CharacterClass":
        return this.#appendOneOf(element.raw, [...charactersIn(element), ...COMMON_CHARACTERS]);
      case "Group":
        return this.writeFirst(element.alternatives);
      case "CapturingGroup":
        return this.#writeCaptured(element);
      case "Backreference":
        return this.#append(this.#captures.get([element.resolved].flat()[0]!) ?? "");
      case "Quantifier":
        return this.#writeRepeated(element);
      default:
        return element.type === "Assertion";
    }
  }

  #append(text: string): boolean {
    this.text += text;
    return this.text.length <= this.#maxLength;
  }

  /** Appends the first candidate in a character class. Testing one character cannot backtrack. */
  #appendOneOf(characterClass: string, candidates: readonly string[]): boolean {
    const matcher = new RegExp(`^${characterClass}$`, this.#flags);
    const match = candidates.find((candidate) => matcher.test(candidate));
    return match !== undefined && this.#append(match);
  }

  #writeCaptured(group: AST.CapturingGroup): boolean {
    const start = this.text.length;
    if (!this.writeFirst(group.alternatives)) return false;
    this.#captures.set(group, this.text.slice(start));
    return true;
  }

  #writeRepeated({ element, min, max }: AST.Quantifier): boolean {
    for (let times = 0; times < max; times++) {
      const isRequired = times < min;
      if (!isRequired && this.#missing <= 0) return true;
      const start = this.text.length;
      if (!this.#write(element)) return false;
      const written = this.text.length - start;
      // Repeating an empty text would never end.
      if (written === 0) return true;
      if (!isRequired) this.#missing -= written;
    }
    return true;
  }
}

/** Returns the characters that a class lists, and the first of each of its ranges. */
function charactersIn({ elements }: AST.CharacterClass): string[] {
  return elements.flatMap((element) => {
    if (element.type === "Character") return String.fromCodePoint(element.value);
    return element.type === "CharacterClassRange" ? String.fromCodePoint(element.min.value) : [];
  });
}
