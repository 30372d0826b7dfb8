/** A regular expression, as far as it is needed to write a text that it matches. */
export type PatternNode =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "sequence"; readonly parts: readonly PatternNode[] }
  /** Of several ways only the first is written. */
  | { readonly kind: "group"; readonly index: number | undefined; readonly body: PatternNode }
  | {
      readonly kind: "repeat";
      readonly body: PatternNode;
      readonly min: number;
      readonly max: number;
    }
  | { readonly kind: "backreference"; readonly index: number };

const MAX_GROUP_DEPTH = 32;
const EMPTY: PatternNode = { kind: "text", text: "" };

/** One character of each class that `\d`, `\w` and the like stand for. */
const CLASS_ESCAPES: Readonly<Record<string, string>> = {
  d: "0",
  w: "a",
  s: " ",
  D: "a",
  W: "-",
  S: "a",
};
const CONTROL_ESCAPES: Readonly<Record<string, string>> = {
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
  f: "\f",
  "0": "\0",
};
/** Tried in turn for a class such as `[^abc]`. */
const OUTSIDERS = "a0A-_ .b1B/é";

/**
 * Parses the syntax of ECMAScript patterns without running them: literals, escapes, classes, groups,
 * quantifiers, alternatives, anchors. Undefined for a pattern it does not understand.
 */
export function parsePattern(pattern: string): PatternNode | undefined {
  const parser = new PatternParser(pattern);
  try {
    return parser.parseAll();
  } catch (error) {
    if (error instanceof UnknownSyntax) return undefined;
    throw error;
  }
}

class UnknownSyntax extends Error {}

class PatternParser {
  readonly #source: string;
  #position = 0;
  #groups = 0;

  constructor(source: string) {
    this.#source = source;
  }

  parseAll(): PatternNode {
    const node = this.#alternatives(0);
    if (this.#position < this.#source.length) throw new UnknownSyntax();
    return node;
  }

  #alternatives(depth: number): PatternNode {
    if (depth > MAX_GROUP_DEPTH) throw new UnknownSyntax();
    const first = this.#sequence(depth);
    while (this.#take("|")) this.#sequence(depth);
    return first;
  }

  #sequence(depth: number): PatternNode {
    const parts: PatternNode[] = [];
    while (this.#position < this.#source.length && !"|)".includes(this.#peek())) {
      parts.push(this.#quantified(this.#atom(depth)));
    }
    return { kind: "sequence", parts };
  }

  #atom(depth: number): PatternNode {
    if (this.#take("(")) return this.#group(depth);
    if (this.#take("[")) return { kind: "text", text: this.#class() };
    if (this.#take("\\")) return this.#escape();
    if (this.#take("^") || this.#take("$")) return EMPTY;
    if (this.#take(".")) return { kind: "text", text: "a" };
    return { kind: "text", text: this.#next() };
  }

  #group(depth: number): PatternNode {
    const opening = /^\?(?::|<?[=!]|<\w+>)/.exec(
      this.#source.slice(this.#position, this.#position + 64),
    );
    if (opening === null && this.#peek() === "?") throw new UnknownSyntax();
    this.#position += opening?.[0].length ?? 0;
    const kind = opening?.[0] ?? "";
    const captures = kind === "" || kind.endsWith(">");
    const index = captures ? ++this.#groups : undefined;
    const body = this.#alternatives(depth + 1);
    if (!this.#take(")")) throw new UnknownSyntax();
    // A look-around takes no text; whether it holds is left to chance.
    if (kind.endsWith("=") || kind.endsWith("!")) return EMPTY;
    return { kind: "group", index, body };
  }

  #quantified(body: PatternNode): PatternNode {
    let [min, max] = [1, 1];
    const braces = /^\{(\d{1,9})(,?)(\d{0,9})\}/.exec(
      this.#source.slice(this.#position, this.#position + 32),
    );
    if (this.#take("*")) [min, max] = [0, Number.POSITIVE_INFINITY];
    else if (this.#take("+")) [min, max] = [1, Number.POSITIVE_INFINITY];
    else if (this.#take("?")) [min, max] = [0, 1];
    else if (braces !== null) {
      this.#position += braces[0].length;
      min = Number(braces[1]);
      if (braces[2] === "") max = min;
      else max = braces[3] === "" ? Number.POSITIVE_INFINITY : Number(braces[3]);
    } else return body;
    this.#take("?");
    return { kind: "repeat", body, min, max };
  }

  #escape(): PatternNode {
    const code = this.#codeEscape();
    if (code !== undefined) return { kind: "text", text: code };
    const letter = this.#next();
    if (letter === "b" || letter === "B") return EMPTY;
    if (letter >= "1" && letter <= "9") return { kind: "backreference", index: Number(letter) };
    if (letter === "k") throw new UnknownSyntax();
    return { kind: "text", text: this.#escaped(letter) };
  }

  #escaped(letter: string): string {
    if (letter === "p" || letter === "P") return this.#property(letter === "P");
    return CLASS_ESCAPES[letter] ?? CONTROL_ESCAPES[letter] ?? letter;
  }

  /** `\p{L}` and the like: a letter, or a digit for the number categories. */
  #property(isNegated: boolean): string {
    const name = /^\{([\w=]{1,64})\}/.exec(this.#source.slice(this.#position, this.#position + 72));
    if (name === null) throw new UnknownSyntax();
    this.#position += name[0].length;
    const isNumber = /^N/.test(name[1]!);
    if (isNegated) return isNumber ? "a" : "0";
    return isNumber ? "0" : /^(?:Lu|Upper)/.test(name[1]!) ? "A" : /^P/.test(name[1]!) ? "-" : "a";
  }

  /** `\x41`, `\u0041`, `\u{1F600}` */
  #codeEscape(): string | undefined {
    const code = /^(?:x([\da-f]{2})|u([\da-f]{4})|u\{([\da-f]{1,6})\})/i.exec(
      this.#source.slice(this.#position, this.#position + 10),
    );
    if (code === null) return undefined;
    const point = Number.parseInt(code[1] ?? code[2] ?? code[3]!, 16);
    if (point > 0x10ffff) throw new UnknownSyntax();
    this.#position += code[0].length;
    return String.fromCodePoint(point);
  }

  /** A character of the class whose opening bracket was taken. */
  #class(): string {
    const isNegated = this.#take("^");
    const ranges: [string, string][] = [];
    while (!this.#take("]")) {
      const low = this.#classCharacter();
      const isRange = this.#peek() === "-" && this.#source[this.#position + 1] !== "]";
      if (isRange) this.#position++;
      ranges.push([low, isRange ? this.#classCharacter() : low]);
    }
    if (!isNegated) {
      if (ranges.length === 0) throw new UnknownSyntax();
      return ranges[0]![0];
    }
    const isListed = (character: string) =>
      ranges.some(([low, high]) => character >= low && character <= high);
    const outsider = [...OUTSIDERS].find((character) => !isListed(character));
    if (outsider === undefined) throw new UnknownSyntax();
    return outsider;
  }

  #classCharacter(): string {
    if (!this.#take("\\")) return this.#next();
    const code = this.#codeEscape();
    if (code !== undefined) return code;
    const letter = this.#next();
    return letter === "b" ? "\b" : this.#escaped(letter);
  }

  #peek(): string {
    return this.#source[this.#position] ?? "";
  }

  #take(character: string): boolean {
    if (this.#source[this.#position] !== character) return false;
    this.#position++;
    return true;
  }

  #next(): string {
    const point = this.#source.codePointAt(this.#position);
    if (point === undefined) throw new UnknownSyntax();
    const character = String.fromCodePoint(point);
    this.#position += character.length;
    return character;
  }
}
