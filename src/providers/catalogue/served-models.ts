/** The reason why a name in a provider's list is not offered. The first match applies. */
interface Exclusion {
  readonly name: RegExp;
  readonly reason: string;
}

const NO_LANGUAGE_MODEL: readonly Exclusion[] = [
  { name: /realtime|voice/i, reason: "it is served by a realtime interface only" },
  { name: /ocr/i, reason: "it is billed per page" },
  { name: /moderation|rerank/i, reason: "it is not a language model" },
  {
    name: /(?<!re)search|deep-research|sonar|:online$/i,
    reason: "each request costs search fees that cannot be metered",
  },
];

const NOT_CHAT_AT_OPENAI: readonly Exclusion[] = [
  { name: /computer-use/i, reason: "it needs a tool that only its caller can run" },
  { name: /instruct/i, reason: "it is served by OpenAI's Completions interface only" },
  { name: /gpt-oss|^gpt-5\.3$/i, reason: "OpenAI does not serve it" },
  // https://developers.openai.com/api/docs/deprecations
  { name: /^dall-e|^gpt-image-1$/, reason: "OpenAI has shut it down" },
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
      reason: "it is a name of weights, which Mistral does not accept",
    },
  ],
  deepseek: [
    { name: /^deepseek-v3/i, reason: "it is a name of weights, which DeepSeek does not accept" },
  ],
  google: [
    { name: /^claude|-maas$/, reason: "it is served by Vertex AI, and not by the Gemini API" },
    {
      name: /^gemini-(flash|pro)-1\.5/,
      reason: "it is OpenRouter's name, which Google does not accept",
    },
  ],
  vertex: [
    {
      name: /^claude-.*(-\d{8}|-latest|-4-0)$/,
      reason: "it is Anthropic's name, which Vertex AI does not accept",
    },
    { name: /^claude-(2|v1|3-sonnet|3-opus)/, reason: "Vertex AI no longer serves it" },
    {
      name: /^gemini-(flash|pro)-1\.5|^gemini-(1\.\d|pro)(?![.\d])/,
      reason: "Vertex AI no longer serves it",
    },
  ],
  cohere: [
    {
      name: /^command(-a|-r|-r-plus|-r7b)?$|^command-light/,
      reason: "Cohere requires names of versions, such as command-a-03-2025",
    },
  ],
  openrouter: [
    { name: /^[^/]*$/, reason: "OpenRouter's names contain a vendor" },
    { name: /^~/, reason: "its price changes with the model that it stands for" },
    { name: /:batch$/, reason: "it is served in batches only" },
  ],
  perplexity: [{ name: /./, reason: "Perplexity ended its chat completions on 27 September 2026" }],
  bedrock: [
    {
      name: /^(?:us|eu|au|jp|apac|ca)\./,
      reason: "the provider's region determines the profile that it is called by",
    },
    { name: /^[^.]*$/, reason: "Bedrock's names contain a vendor" },
    {
      name: /gpt-5\.[45]$/,
      reason: "it is served by OpenAI's Responses interface on Bedrock only",
    },
    { name: /sonic/, reason: "it is served by a separate speech interface" },
  ],
  zai: [{ name: /flash/i, reason: "the listed price is that of a launch promotion" }],
};

/** Matches comments on prices that were copied from another provider's list because none was published. */
const BORROWED_PRICE = /openrouter pricing|trusting open ?router|seen on openrouter/i;

/** Returns the reason why a listed name cannot be served and billed exactly. Undefined if it can. */
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
  // https://developers.openai.com/api/docs/models/gpt-audio
  { name: /^gpt-(?:4o-(?:mini-)?)?audio/, tokens: 16_384 },
  // https://platform.claude.com/docs/en/about-claude/models/overview
  { name: /claude-(?:fable|mythos|[a-z]+-(?:[5-9]|4[-.][6-9]))/, tokens: 128_000 },
  { name: /claude-(?:[a-z]+-4[-.]5|sonnet-4|3[-.]7)/, tokens: 64_000 },
  { name: /claude-opus-4/, tokens: 32_000 },
  { name: /claude-3[-.]5/, tokens: 8_192 },
  { name: /claude-(?:3|2|v2|instant)/, tokens: 4_096 },
  // https://docs.cohere.com/docs/models
  { name: /^(cohere\/)?command-a\b/, tokens: 8_192 },
  { name: /^(cohere\/)?command-r|aya-expanse/, tokens: 4_096 },
  // https://ai.google.dev/gemini-api/docs/models
  { name: /^(google\/)?gemini-.*-image/, tokens: 32_768 },
  { name: /^(google\/)?gemini-(2\.5|3)/, tokens: 65_536 },
  // https://docs.aws.amazon.com/nova/latest/nova2-userguide/what-is-nova-2.html
  { name: /amazon\.nova-2-lite/, tokens: 64_000 },
];

/** Returns the published output limit of models that are newer than the capability list. */
export function knownOutputLimit(name: string): number | undefined {
  return OUTPUT_LIMITS.find((limit) => limit.name.test(name))?.tokens;
}

const INPUT_LIMITS: readonly { readonly name: RegExp; readonly tokens: number }[] = [
  { name: /^gemini-embedding-001$/, tokens: 2_048 },
  // Lists round it up.
  { name: /^(openai\/)?text-embedding-(3-|ada-)/, tokens: 8_191 },
];

/** Returns the published input limit of models for which the lists have none, or a wrong one. */
export function knownInputLimit(name: string): number | undefined {
  return INPUT_LIMITS.find((limit) => limit.name.test(name))?.tokens;
}
