/** Differences between models of Converse in the requests that they accept. */
export interface ConverseTraits {
  readonly takesSystem: boolean;
  /**
   * How a request can ask for a tool call. Each value includes those before it: not at all, by offering
   * tools, by demanding any of them, by naming one.
   */
  readonly tools: "none" | "auto" | "any" | "named";
  /** Whether the model can stream an answer to a request with tools. */
  readonly streamsTools: boolean;
  /** Whether the model supports structured outputs with a JSON schema, and strict tools. */
  readonly takesSchemas: boolean;
  /**
   * Positions of cache points. `prompt`: between system blocks and messages, for five minutes. `anywhere`:
   * also after tools, and for an hour.
   */
  readonly cachePoints: "none" | "prompt" | "anywhere";
  /**
   * The field that enables reasoning: `reasoningConfig` of Nova 2, `reasoning_effort`, or OpenAI's
   * `reasoning`.
   */
  readonly reasoning: "none" | "config" | "effort" | "object";
  /** The field for `top_k`. */
  readonly topK: "none" | "nova" | "plain";
  /** Whether the model accepts `temperature` and `top_p`. */
  readonly takesSampling: boolean;
  readonly takesStop: boolean;
  /** Whether call ids have to be nine letters and digits. */
  readonly hasShortCallIds: boolean;
}

/** Traits of an ARN or an unknown name, which can be any model. Bedrock's answer says what it rejects. */
const UNKNOWN: ConverseTraits = {
  takesSystem: true,
  tools: "named",
  streamsTools: true,
  takesSchemas: true,
  cachePoints: "anywhere",
  reasoning: "none",
  topK: "none",
  takesSampling: true,
  takesStop: true,
  hasShortCallIds: false,
};
const OPEN_WEIGHTS: ConverseTraits = { ...UNKNOWN, cachePoints: "none" };
const MISTRAL: ConverseTraits = { ...OPEN_WEIGHTS, hasShortCallIds: true };
const TEXT_ONLY: ConverseTraits = { ...OPEN_WEIGHTS, tools: "none", takesSchemas: false };
const NOVA: ConverseTraits = {
  ...OPEN_WEIGHTS,
  takesSchemas: false,
  cachePoints: "prompt",
  topK: "nova",
};
const LLAMA: ConverseTraits = {
  ...OPEN_WEIGHTS,
  tools: "auto",
  streamsTools: false,
  takesSchemas: false,
};

/**
 * Model families, from
 * https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-supported-models-features.html,
 * structured-output.html and prompt-caching.html there, and from answers of Bedrock. The first match decides.
 */
const FAMILIES: readonly { readonly name: RegExp; readonly traits: ConverseTraits }[] = [
  { name: /amazon[./]nova-2/, traits: { ...NOVA, reasoning: "config" } },
  { name: /amazon[./]nova/, traits: NOVA },
  { name: /amazon[./]titan/, traits: { ...TEXT_ONLY, takesSystem: false } },
  { name: /llama-?3(?![-.]?[123])|llama-?3[-.]2-[13]b/, traits: TEXT_ONLY },
  { name: /llama/, traits: LLAMA },
  {
    name: /mistral-7b|mixtral/,
    traits: { ...TEXT_ONLY, takesSystem: false, topK: "plain" },
  },
  {
    name: /mistral-(?:large|small)-24|pixtral/,
    traits: { ...MISTRAL, tools: "any", takesSchemas: false },
  },
  { name: /mistral[./]/, traits: MISTRAL },
  { name: /deepseek[.-](?:deepseek-)?r1/, traits: TEXT_ONLY },
  // The model accepts a named tool and ignores it.
  { name: /deepseek/, traits: { ...OPEN_WEIGHTS, tools: "any", reasoning: "effort" } },
  { name: /gpt-oss/, traits: { ...OPEN_WEIGHTS, reasoning: "effort", takesStop: false } },
  {
    name: /openai[./]gpt-/,
    traits: { ...OPEN_WEIGHTS, reasoning: "object", takesSampling: false, takesStop: false },
  },
  { name: /kimi/, traits: { ...OPEN_WEIGHTS, reasoning: "effort" } },
  { name: /jamba|command-r/, traits: { ...OPEN_WEIGHTS, tools: "auto", takesSchemas: false } },
  { name: /palmyra/, traits: { ...OPEN_WEIGHTS, tools: "auto", takesSchemas: false } },
  { name: /command|jurassic|j2-/, traits: { ...TEXT_ONLY, takesSystem: false } },
  { name: /^[a-z0-9-]+\.[a-z]/, traits: OPEN_WEIGHTS },
];

/**
 * Returns the traits of a model. @param names the provider's name of the model and its id in the catalogue
 */
export function converseTraits(...names: readonly (string | undefined)[]): ConverseTraits {
  // After its last slash an ARN can have the name of a model.
  const modelNames = names
    .filter((name) => name !== undefined)
    .map((name) => (name.startsWith("arn:") ? name.slice(name.lastIndexOf("/") + 1) : name));
  const family = FAMILIES.find(({ name: pattern }) =>
    modelNames.some((name) => pattern.test(name.toLowerCase())),
  );
  return family?.traits ?? UNKNOWN;
}

/** Returns true if a model is Anthropic's, which Bedrock serves with Anthropic's API. */
export function isClaude(...names: readonly (string | undefined)[]): boolean {
  return names.some((name) => name !== undefined && /(?:^|[./])anthropic[./]|claude-/.test(name));
}
