import { countTokens } from "gpt-tokenizer/encoding/o200k_base";

export interface ChunkSize {
  readonly maxTokens: number;
  /** Tokens that a chunk shares with the previous chunk. At most half of `maxTokens`. */
  readonly overlapTokens: number;
}

/**
 * Longest unit, which is a sentence, a line or a part of one. No unit has more tokens than the smallest chunk.
 */
const MAX_UNIT_CHARACTERS = 200;
const MAX_UNIT_TOKENS = 50;
/**
 * A run of 64 characters without white space. Such runs are cut, because tokenizers take quadratic time for a
 * very long word.
 */
const LONG_RUN = /\S{64}/g;
const NOT_SPECIAL = { disallowedSpecial: new Set<string>() };

interface Unit {
  readonly text: string;
  readonly tokens: number;
}

/**
 * Yields chunks of a text that end with a sentence, a line or a word. Tokens are counted with o200k_base for each
 * unit; their sum is the exact number or slightly more.
 */
export function* chunkText(
  text: string,
  { maxTokens, overlapTokens }: ChunkSize,
): Generator<string> {
  let chunk: Unit[] = [];
  let tokens = 0;
  let fresh = 0;
  for (const unit of unitsOf(text)) {
    if (tokens + unit.tokens > maxTokens) {
      yield textOf(chunk);
      [chunk, tokens] = endOf(chunk, Math.min(overlapTokens, maxTokens - unit.tokens));
      fresh = 0;
    }
    chunk.push(unit);
    tokens += unit.tokens;
    fresh += 1;
  }
  if (fresh > 0) yield textOf(chunk);
}

function textOf(units: readonly Unit[]): string {
  return units
    .map(({ text }) => text)
    .join("")
    .trim();
}

/** Returns the last units of a chunk within `maxTokens`, but never all units. */
function endOf(units: readonly Unit[], maxTokens: number): [units: Unit[], tokens: number] {
  let first = units.length;
  let tokens = 0;
  while (first > 1 && tokens + units[first - 1]!.tokens <= maxTokens) {
    first -= 1;
    tokens += units[first]!.tokens;
  }
  return [units.slice(first), tokens];
}

function* unitsOf(text: string): Generator<Unit> {
  for (const [sentence] of text.matchAll(/[^\n]*?(?:[.!?](?=\s)\s*|[。！？]\s*|\n+|$)/g)) {
    if (sentence !== "") yield* cutUnits(sentence);
  }
}

/** Yields the whole sentence, or halves of it until they are short enough. */
function* cutUnits(text: string): Generator<Unit> {
  if (text.length <= MAX_UNIT_CHARACTERS) {
    const tokens = countTokens(text.replace(LONG_RUN, "$& "), NOT_SPECIAL);
    if (tokens <= MAX_UNIT_TOKENS || text.length < 2) return yield { text, tokens };
  }
  const middle = middleOf(text);
  yield* cutUnits(text.slice(0, middle));
  yield* cutUnits(text.slice(middle));
}

/**
 * Returns the position after the last space before the middle, or the middle itself, but never inside a surrogate
 * pair.
 */
function middleOf(text: string): number {
  const middle = Math.ceil(text.length / 2);
  const space = text.lastIndexOf(" ", middle - 1) + 1;
  if (space > middle / 2) return space;
  const isInside = text.length > 2 && /[\udc00-\udfff]/.test(text[middle]!);
  return isInside ? middle + 1 : middle;
}
