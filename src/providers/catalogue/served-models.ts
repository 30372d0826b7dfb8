/** Priced by tokens of sound and images that the price list does not tell apart, or no language models. */
const OTHER_MEDIA = /audio|realtime|image|tts|voice|ocr|moderation|rerank/i;
/** Each request costs a search fee that is no token price. */
const SEARCH_FEE = /search|deep-research|sonar|:online$/i;
/** Only served by OpenAI's Responses and Completions endpoints, or not by OpenAI at all. */
const NOT_CHAT_AT_OPENAI =
  /codex|-pro\b|computer-use|instruct|gpt-oss|:|^ft[.:-]|\.ft-|^gpt-5\.3$/i;

const LEFT_OUT: Readonly<Record<string, RegExp>> = {
  openai: NOT_CHAT_AT_OPENAI,
  azure: NOT_CHAT_AT_OPENAI,
  // Names of the weights, which the API does not take.
  mistral: /:|^mistral-7b|^mixtral/i,
  deepseek: /^deepseek-v3/i,
  // Every transcription costs at least 10 seconds of sound.
  groq: /whisper/i,
  // Ids without a vendor are not OpenRouter's, batches are no chat, and what ~ names changes its price.
  openrouter: /^[^/]*$|^~|:batch$/,
  // The listed price is that of a launch promotion.
  zai: /flash/i,
};

/** Prices taken over from another provider's list for want of a published one. */
const BORROWED_PRICE = /openrouter pricing|trusting open ?router|seen on openrouter/i;

/** False for names that the provider lists but that cannot be served and billed exactly here. */
export function isServed(providerType: string, name: string, priceComment: string): boolean {
  if (OTHER_MEDIA.test(name) || SEARCH_FEE.test(name)) return false;
  if (Object.hasOwn(LEFT_OUT, providerType) && LEFT_OUT[providerType]?.test(name)) return false;
  return providerType === "openrouter" || !BORROWED_PRICE.test(priceComment);
}

const OUTPUT_LIMITS: readonly { readonly name: RegExp; readonly tokens: number }[] = [
  { name: /^(openai\/)?gpt-5/, tokens: 128_000 },
];

/** The published limit of output tokens of models that are newer than the capability list. */
export function knownOutputLimit(name: string): number | undefined {
  return OUTPUT_LIMITS.find((limit) => limit.name.test(name))?.tokens;
}
