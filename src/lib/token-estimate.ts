/**
 * Tokens counted without a tokenizer, for what a provider did not tell: an answer that was cut off, or a
 * provider that reports no usage. English runs at about four bytes a token, other scripts at about one
 * token a character of three bytes.
 */
const BYTES_PER_TOKEN = 4;
/** A piece of a stream up to this size is one token: providers send tokens as they come. */
const MAX_SINGLE_TOKEN_BYTES = 12;
const TOKENS_PER_MESSAGE = 4;

export function tokensOfBytes(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}

/** Tokens in one content delta of a stream. */
export function tokensOfDelta(bytes: number): number {
  if (bytes === 0) return 0;
  return bytes <= MAX_SINGLE_TOKEN_BYTES ? 1 : tokensOfBytes(bytes);
}

export function tokensOfPrompt(bytes: number, messages: number): number {
  return tokensOfBytes(bytes) + messages * TOKENS_PER_MESSAGE;
}
