/**
 * How the providers that speak OpenAI's wire format differ from one another. A difference is listed
 * only where the provider is known to refuse the plain form; every other field passes through.
 */
export interface WireDialect {
  readonly keyHeader: "authorization" | "api-key";
  /** Whether `max_tokens` must be called `max_completion_tokens` for the model of this name or id. */
  readonly takesCompletionLimit: (model: string) => boolean;
  /**
   * What becomes of `reasoning: {effort}`: sent as it is, turned into `reasoning_effort`, or left out.
   */
  readonly reasoning: "object" | "effort" | "none";
  /** Fields that would be answered with an error, and so are left out. */
  readonly leftOut: readonly string[];
  readonly renamed: Readonly<Record<string, string>>;
  /** By role: members of messages that would be answered with an error, and so are left out. */
  readonly leftOutOfMessages: Readonly<Record<string, readonly string[]>>;
  /** What it calls the reasoning of an earlier answer, under which alone it takes it back. */
  readonly reasoningMember?: "reasoning" | "reasoning_content";
  /** Sent with a prompt that holds files. */
  readonly withFiles?: Readonly<Record<string, unknown>>;
  /** Whether it knows the role `developer`; else that is `system`, whose newer name it is. */
  readonly hasDeveloperRole: boolean;
}

const PLAIN: WireDialect = {
  keyHeader: "authorization",
  takesCompletionLimit: () => false,
  reasoning: "object",
  leftOut: [],
  renamed: {},
  leftOutOfMessages: {},
  hasDeveloperRole: true,
};

/** Sampling fields of open-weight servers, which others refuse by name. */
const OPEN_WEIGHT_SAMPLING = ["top_k", "min_p", "repetition_penalty"];

/** Of what OpenAI keeps of an answer; some clients say in each request that nothing is to be kept. */
const STORING = ["store", "metadata"];

/** Members that answers have, and that those who know no others than their own refuse to take back. */
const ANSWERS_ONLY = ["refusal", "annotations", "audio", "reasoning_details"];
const REASONING = ["reasoning", "reasoning_content"];

/** The o-series, gpt-5 and later refuse `max_tokens`; older models take it everywhere. */
const NEWER_OPENAI_MODEL = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-(?:[5-9]|[1-9]\d))/;

const OPENAI: WireDialect = {
  ...PLAIN,
  takesCompletionLimit: (model) => NEWER_OPENAI_MODEL.test(model),
  reasoning: "effort",
  leftOut: OPEN_WEIGHT_SAMPLING,
  // Its own answers hold none, so this is what another provider answered ("Unknown parameter").
  leftOutOfMessages: { assistant: [...REASONING, "reasoning_details"] },
};

const DIALECTS: ReadonlyMap<string, WireDialect> = new Map<string, WireDialect>([
  ["openai", OPENAI],
  ["azure", { ...OPENAI, keyHeader: "api-key" }],
  [
    "mistral",
    {
      ...PLAIN,
      reasoning: "none",
      // Mistral forbids every unknown field (422 extra_forbidden), `stream_options` too: its streams
      // carry usage in the last chunk without being asked.
      leftOut: [...OPEN_WEIGHT_SAMPLING, ...STORING, "stream_options", "user", "logit_bias"],
      renamed: { seed: "random_seed" },
      leftOutOfMessages: {
        system: ["name"],
        developer: ["name"],
        user: ["name"],
        assistant: ["name", ...REASONING, ...ANSWERS_ONLY],
      },
      hasDeveloperRole: false,
    },
  ],
  // https://console.groq.com/docs/openai lists what it answers with 400.
  [
    "groq",
    {
      ...PLAIN,
      reasoning: "effort",
      leftOut: [...OPEN_WEIGHT_SAMPLING, ...STORING, "logit_bias"],
      // "property 'annotations' is unsupported"
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning",
    },
  ],
  // "property 'reasoning' is unsupported", as of any that it does not know
  [
    "cerebras",
    {
      ...PLAIN,
      reasoning: "effort",
      leftOut: [...OPEN_WEIGHT_SAMPLING, ...STORING],
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning",
    },
  ],
  // While they think, DeepSeek and Moonshot refuse tool calls that come back without their reasoning.
  [
    "deepseek",
    {
      ...PLAIN,
      reasoning: "effort",
      reasoningMember: "reasoning_content",
      hasDeveloperRole: false,
    },
  ],
  ["moonshot", { ...PLAIN, leftOut: STORING, reasoningMember: "reasoning_content" }],
  // Where it may choose, OpenRouter has PDFs read by an OCR at a price for each page, unless the model reads
  // them itself: its own reading is all that its tokens pay for.
  [
    "openrouter",
    { ...PLAIN, withFiles: { plugins: [{ id: "file-parser", pdf: { engine: "native" } }] } },
  ],
  ["xai", { ...PLAIN, reasoning: "effort" }],
  // "Extra inputs are not permitted, field: 'messages[8].reasoning'"
  [
    "fireworks",
    {
      ...PLAIN,
      reasoning: "effort",
      leftOutOfMessages: { assistant: ANSWERS_ONLY },
      reasoningMember: "reasoning_content",
    },
  ],
  ["zai", { ...PLAIN, reasoningMember: "reasoning_content", hasDeveloperRole: false }],
]);

/** The dialect of a provider type; the plain one where nothing is known to differ. */
export function wireDialect(type: string): WireDialect {
  return DIALECTS.get(type) ?? PLAIN;
}
