/**
 * Characters of a piece. Tokenizers take quadratic time for a very long word, so a text is cut into such pieces.
 */
const PIECE_CHARACTERS = 4_096;
const LONG_RUN = /\S{64}/g;
/** Pieces between two pauses that let other work run. */
const PIECES_AT_A_TIME = 4;

/**
 * Counts the tokens of a text with OpenAI's current encoding (o200k_base) until the count exceeds `limit`. It
 * cuts words longer than 64 characters, which can only raise the count. The encoding takes 10 MB, so the first
 * call loads it.
 */
export async function countTokensUpTo(text: string, limit: number): Promise<number> {
  const { countTokens } = await import("gpt-tokenizer/encoding/o200k_base");
  let tokens = 0;
  for (let piece = 0; piece * PIECE_CHARACTERS < text.length; piece++) {
    if (tokens > limit) break;
    const start = piece * PIECE_CHARACTERS;
    const cut = text.slice(start, start + PIECE_CHARACTERS).replace(LONG_RUN, "$& ");
    tokens += countTokens(cut, { disallowedSpecial: new Set() });
    if (piece % PIECES_AT_A_TIME === PIECES_AT_A_TIME - 1) await Bun.sleep(0);
  }
  return tokens;
}
