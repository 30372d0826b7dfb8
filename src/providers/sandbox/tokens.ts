/**
 * The sandbox's tokens, in place of a tokenizer's: a token is up to four characters (code points) of
 * a word together with the white space before it; white space at the end is one token.
 */
const TOKEN_CHARACTERS = 4;

const TOKEN = /\s*\S{1,4}|\s+/gu;

/** The first `limit` tokens of a text; joined, all of its tokens are the text again. */
export function splitTokens(text: string, limit = Number.POSITIVE_INFINITY): string[] {
  const tokens: string[] = [];
  for (const match of text.matchAll(TOKEN)) {
    if (tokens.length >= limit) break;
    tokens.push(match[0]);
  }
  return tokens;
}

/** How many tokens a text has, without building them. */
export function countTokens(text: string): number {
  let tokens = 0;
  let wordCharacters = 0;
  let endsWithSpace = false;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (isSpace(unit)) {
      wordCharacters = 0;
      endsWithSpace = true;
      continue;
    }
    if (isLowSurrogateOfPair(text, index, unit)) continue;
    if (wordCharacters % TOKEN_CHARACTERS === 0) tokens++;
    wordCharacters++;
    endsWithSpace = false;
  }
  return endsWithSpace ? tokens + 1 : tokens;
}

function isLowSurrogateOfPair(text: string, index: number, unit: number): boolean {
  if (unit < 0xdc00 || unit > 0xdfff || index === 0) return false;
  const before = text.charCodeAt(index - 1);
  return before >= 0xd800 && before <= 0xdbff;
}

/** The characters of `\s` (ECMA-262: WhiteSpace and LineTerminator). */
function isSpace(unit: number): boolean {
  if (unit === 0x20 || (unit >= 0x09 && unit <= 0x0d)) return true;
  if (unit < 0xa0) return false;
  return (
    unit === 0xa0 ||
    unit === 0x1680 ||
    (unit >= 0x2000 && unit <= 0x200a) ||
    unit === 0x2028 ||
    unit === 0x2029 ||
    unit === 0x202f ||
    unit === 0x205f ||
    unit === 0x3000 ||
    unit === 0xfeff
  );
}
