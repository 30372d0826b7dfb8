/** Why a name of a provider's list is not offered. The first that matches decides. */
interface Exclusion {
  readonly name: RegExp;
  readonly reason: string;
}

const NO_LANGUAGE_MODEL: readonly Exclusion[] = [
  { name: /realtime|voice/i, reason: "it is served by a realtime interface only" },
  { name: /ocr/i, reason: "it is billed by the page" },
  { name: /moderation|rerank/i, reason: "it is no language model" },
  {
    name: /(?<!re)search|deep-research|sonar|:online$/i,
    reason: "each request costs search fees that cannot be metered",
  },
];

const NOT_CHAT_AT_OPENAI: readonly Exclusion[] = [
  {
    name: /codex|-pro\b|computer-use/i,
    reason: "it is served by OpenAI's Responses interface only",
  },
  { name: /instruct/i, reason: "it is served by OpenAI's Completions interface only" },
  { name: /gpt-oss|^gpt-5\.3$/i, reason: "OpenAI does not serve it" },
  { name: /:|^ft[.:-]|\.ft-/i, reason: "it stands for fine-tuned models" },
];

const AT_PROVIDER: Readonly<Record<string, readonly Exclusion[]>> = {
  openai: NOT_CHAT_AT_OPENAI,
  azure: [
    { name: /phi|wizardlm|mai-ds/i, reason: "Azure OpenAI does not serve it" },
    ...NOT_CHAT_AT_OPENAI,
  ],
  mistral: [
    {
      name: /:|^mistral-7b|^mixtral/i,
      reason: "it is the name of weights, which Mistral does not take",
    },
  ],
  deepseek: [
    { name: /^deepseek-v3/i, reason: "it is the name of weights, which DeepSeek does not take" },
  ],
  google: [
    { name: /^claude|-maas$/, reason: "it is served by Vertex AI, and not by the Gemini API" },
    {
      name: /^gemini-(flash|pro)-1\.5/,
      reason: "it is OpenRouter's name, which Google does not take",
    },
  ],
  groq: [{ name: /whisper/i, reason: "each transcription costs at least 10 seconds of sound" }],
  openrouter: [
    { name: /^[^/]*$/, reason: "OpenRouter's names have a vendor" },
    { name: /^~/, reason: "its price changes with the model that it stands for" },
    { name: /:batch$/, reason: "it is served in batches only" },
  ],
  perplexity: [{ name: /./, reason: "Perplexity ended its chat completions on 27 September 2026" }],
  zai: [{ name: /flash/i, reason: "the listed price is that of a launch promotion" }],
};

/** Prices taken over from another provider's list for want of a published one. */
const BORROWED_PRICE = /openrouter pricing|trusting open ?router|seen on openrouter/i;

/** Why a name that the provider's list has cannot be served and billed exactly here; undefined where it can. */
export function exclusionReason(
  providerType: string,
  name: string,
  priceComment: string,
): string | undefined {
  const exclusions = [
    ...(Object.hasOwn(AT_PROVIDER, providerType) ? AT_PROVIDER[providerType]! : []),
    ...NO_LANGUAGE_MODEL,
  ];
  const reason = exclusions.find((exclusion) => exclusion.name.test(name))?.reason;
  if (reason !== undefined) return reason;
  return providerType !== "openrouter" && BORROWED_PRICE.test(priceComment)
    ? "its price is another provider's"
    : undefined;
}

const OUTPUT_LIMITS: readonly { readonly name: RegExp; readonly tokens: number }[] = [
  { name: /^(openai\/)?gpt-5/, tokens: 128_000 },
  // https://platform.claude.com/docs/en/about-claude/models/overview
  { name: /claude-(?:fable|mythos|[a-z]+-(?:[5-9]|4[-.][6-9]))/, tokens: 128_000 },
  { name: /claude-(?:[a-z]+-4[-.]5|sonnet-4|3[-.]7)/, tokens: 64_000 },
  { name: /claude-opus-4/, tokens: 32_000 },
  { name: /claude-3[-.]5/, tokens: 8_192 },
  { name: /claude-(?:3|2|v2|instant)/, tokens: 4_096 },
  { name: /^(google\/)?gemini-(2\.5|3)/, tokens: 65_536 },
];

/** The published limit of output tokens of models that are newer than the capability list. */
export function knownOutputLimit(name: string): number | undefined {
  return OUTPUT_LIMITS.find((limit) => limit.name.test(name))?.tokens;
}

/** The published limit of input tokens of models for which no list has a context length. */
export function knownInputLimit(name: string): number | undefined {
  return name === "gemini-embedding-001" ? 2_048 : undefined;
}
