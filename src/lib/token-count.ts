/** Tokenizers take quadratic time on one very long word, so a text is cut into pieces of this length. */
const PIECE_CHARACTERS = 4_096;
const LONG_RUN = /\S{64}/g;
/** Pieces between two pauses in which the process does other things. */
const PIECES_AT_A_TIME = 4;

/**
 * Tokens of a text by OpenAI's encoding of its current models (o200k_base), counted until they pass
 * `limit`. Words longer than 64 characters are cut, which can only make it more tokens. The encoding
 * is loaded when it is first needed, because it takes 10 MB.
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
