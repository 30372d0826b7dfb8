import { type PatternNode, parsePattern } from "./pattern-parse.ts";

const MAX_PATTERN_CHARACTERS = 4_096;

/**
 * A text that matches a regular expression, as far as its syntax is understood, with at least
 * `minLength` characters if its quantifiers allow that many. Undefined when there is none of at most
 * `maxLength`. The pattern is read, never run: a caller's pattern may take for ever.
 */
export function patternExample(
  pattern: string,
  minLength: number,
  maxLength: number,
): string | undefined {
  if (pattern.length > MAX_PATTERN_CHARACTERS) return undefined;
  const root = parsePattern(pattern);
  if (root === undefined) return undefined;
  const writer = new ExampleWriter(maxLength);
  if (!writer.write(root)) return undefined;
  if (writer.text.length >= minLength) return writer.text;
  const longer = new ExampleWriter(maxLength, minLength - writer.text.length);
  return longer.write(root) ? longer.text : writer.text;
}

class ExampleWriter {
  text = "";
  readonly #maxLength: number;
  readonly #captures = new Map<number, string>();
  /** Characters that repetitions beyond their minimum are still to add. */
  #missing: number;

  constructor(maxLength: number, missing = 0) {
    this.#maxLength = maxLength;
    this.#missing = missing;
  }

  /** Appends the node's text; false when that would be too long. */
  write(node: PatternNode): boolean {
    switch (node.kind) {
      case "text":
        return this.#append(node.text);
      case "sequence":
        return node.parts.every((part) => this.write(part));
      case "backreference":
        return this.#append(this.#captures.get(node.index) ?? "");
      case "group":
        return this.#writeGroup(node.index, node.body);
      case "repeat":
        return this.#writeRepeated(node);
    }
  }

  #append(text: string): boolean {
    this.text += text;
    return this.text.length <= this.#maxLength;
  }

  #writeGroup(index: number | undefined, body: PatternNode): boolean {
    const start = this.text.length;
    if (!this.write(body)) return false;
    if (index !== undefined) this.#captures.set(index, this.text.slice(start));
    return true;
  }

  #writeRepeated(node: PatternNode & { kind: "repeat" }): boolean {
    for (let times = 0; times < node.max; times++) {
      const isOwed = times < node.min;
      if (!isOwed && this.#missing <= 0) return true;
      const start = this.text.length;
      if (!this.write(node.body)) return false;
      const written = this.text.length - start;
      // A body without text would be repeated for ever to no effect.
      if (written === 0) return true;
      if (!isOwed) this.#missing -= written;
    }
    return true;
  }
}
