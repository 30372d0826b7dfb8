/**
 * The sandbox's tokens: a token is up to four characters (code points) of a word, with the white space
 * before it; white space at the end is one token.
 */
const TOKEN_CHARACTERS = 4;

const TOKEN = /\s*\S{1,4}|\s+/gu;
const OTHER_SPACES = [
  ...("\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008" +
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"),
].map((space) => space.charCodeAt(0));

/** The first `limit` tokens of a text. All of its tokens joined are the text. */
export function splitTokens(text: string, limit = Number.POSITIVE_INFINITY): string[] {
  const tokens: string[] = [];
  for (const match of text.matchAll(TOKEN)) {
    if (tokens.length >= limit) break;
    tokens.push(match[0]);
  }
  return tokens;
}

/** The number of tokens of a text, counted without creating them. */
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

/** The characters of `\s`. Those of most scripts are recognised without a search. */
function isSpace(unit: number): boolean {
  if (unit < 0x1680) return unit === 0x20 || unit === 0xa0 || (unit >= 0x09 && unit <= 0x0d);
  return (unit <= 0x3000 || unit === 0xfeff) && OTHER_SPACES.includes(unit);
}
