/**
 * Estimates token counts without a tokenizer, for answers that were cut off and providers that report no usage.
 * English has about four bytes per token; other scripts have about one token per character of three bytes.
 */
const BYTES_PER_TOKEN = 4;
/** A content delta up to this size counts as one token, because providers send tokens as they are generated. */
const MAX_SINGLE_TOKEN_BYTES = 12;
const TOKENS_PER_MESSAGE = 4;

export function tokensOfBytes(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/** Returns the tokens of one content delta of a stream. */
export function tokensOfDelta(bytes: number): number {
  if (bytes === 0) return 0;
  return bytes <= MAX_SINGLE_TOKEN_BYTES ? 1 : tokensOfBytes(bytes);
}

export function tokensOfPrompt(bytes: number, messages: number): number {
  return tokensOfBytes(bytes) + messages * TOKENS_PER_MESSAGE;
}

/**
 * Tokens per UTF-16 code unit, measured with OpenAI's encodings o200k_base and cl100k_base over prose, code, JSON
 * and other scripts.
 */
const TOKENS_PER_LETTER = 0.25;
const TOKENS_PER_DIGIT = 0.5;
const TOKENS_PER_SPACE = 0.04;
const TOKENS_PER_BREAK = 0.4;
const TOKENS_PER_MARK = 0.65;
const TOKENS_PER_ACCENTED = 0.7;
const TOKENS_PER_GREEK_OR_CYRILLIC = 0.45;
const TOKENS_PER_OTHER = 1;
/** Factor for tokenizers that produce more tokens. */
const MARGIN = 1.2;

/**
 * Estimates the tokens of a text, rather too high than too low, for texts that must fit into a model's context.
 */
export function estimatedTextTokens(text: string): number {
  let tokens = 0;
  for (let at = 0; at < text.length; at++) tokens += tokensOfCodeUnit(text.charCodeAt(at));
  return Math.ceil(tokens * MARGIN);
}

function tokensOfCodeUnit(code: number): number {
  if (code >= 0x80) {
    if (code < 0x250) return TOKENS_PER_ACCENTED;
    return code < 0x530 ? TOKENS_PER_GREEK_OR_CYRILLIC : TOKENS_PER_OTHER;
  }
  if ((code | 0x20) >= 0x61 && (code | 0x20) <= 0x7a) return TOKENS_PER_LETTER;
  if (code === 0x20) return TOKENS_PER_SPACE;
  if (code >= 0x30 && code <= 0x39) return TOKENS_PER_DIGIT;
  return code < 0x20 ? TOKENS_PER_BREAK : TOKENS_PER_MARK;
}
