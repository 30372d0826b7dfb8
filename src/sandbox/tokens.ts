/**
 * Characters of a token. A token is up to four characters (code points) of a word, with the white space
 * before it. White space at the end of a text is one token.
 */
const TOKEN_CHARACTERS = 4;

const TOKEN = /\s*\S{1,4}|\s+/gu;
const OTHER_SPACES = [
  ...("\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008" +
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"),
].map((space) => space.charCodeAt(0));

/** Returns the first `limit` tokens of a text. The concatenation of all its tokens is the text. */
export function splitTokens(text: string, limit = Number.POSITIVE_INFINITY): string[] {
  const tokens: string[] = [];
  for (const match of text.matchAll(TOKEN)) {
    if (tokens.length >= limit) break;
    tokens.push(match[0]);
  }
  return tokens;
}

/** Returns the number of tokens of a text, without creating them. */
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
  const previous = text.charCodeAt(index - 1);
  return previous >= 0xd800 && previous <= 0xdbff;
}

/** Returns true for the characters of `\s`. Characters of most scripts need no search. */
function isSpace(unit: number): boolean {
  if (unit < 0x1680) return unit === 0x20 || unit === 0xa0 || (unit >= 0x09 && unit <= 0x0d);
  return (unit <= 0x3000 || unit === 0xfeff) && OTHER_SPACES.includes(unit);
}
