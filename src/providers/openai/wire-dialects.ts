/**
 * How the providers that speak OpenAI's wire format differ from one another in the form of what they take.
 * A difference is listed only where the provider is known to refuse the plain form. Which fields of a
 * request they support is stated by ../chat-fields.ts: what one lacks is left out before it gets here.
 */
export interface WireDialect {
  readonly keyHeader: "authorization" | "api-key";
  /** Whether `max_tokens` must be called `max_completion_tokens` for the model of this name or id. */
  readonly takesCompletionLimit: (model: string) => boolean;
  /**
   * What becomes of `reasoning: {effort}`: sent as it is, turned into `reasoning_effort`, or left out.
   */
  readonly reasoning: "object" | "effort" | "none";
  /** Whether it knows `stream_options`, by which the gateway asks for the usage of a stream. */
  readonly takesStreamOptions: boolean;
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
  takesStreamOptions: true,
  renamed: {},
  leftOutOfMessages: {},
  hasDeveloperRole: true,
};

/** Members that answers have, and that those who know no others than their own refuse to take back. */
const ANSWERS_ONLY = ["refusal", "annotations", "audio", "reasoning_details"];
const REASONING = ["reasoning", "reasoning_content"];

/** The o-series, gpt-5 and later refuse `max_tokens`; older models take it everywhere. */
const NEWER_OPENAI_MODEL = /^(?:[^/]+\/)?(?:ft:)?(?:o\d|codex|gpt-(?:[5-9]|[1-9]\d))/;

const OPENAI: WireDialect = {
  ...PLAIN,
  takesCompletionLimit: (model) => NEWER_OPENAI_MODEL.test(model),
  reasoning: "effort",
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
      takesStreamOptions: false,
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
  [
    "groq",
    {
      ...PLAIN,
      reasoning: "effort",
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
  ["moonshot", { ...PLAIN, reasoning: "none", reasoningMember: "reasoning_content" }],
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
  [
    "zai",
    {
      ...PLAIN,
      reasoning: "none",
      reasoningMember: "reasoning_content",
      hasDeveloperRole: false,
    },
  ],
  ["perplexity", { ...PLAIN, reasoning: "effort" }],
  ["sambanova", { ...PLAIN, reasoning: "effort" }],
]);

/** The dialect of a provider type; the plain one where nothing is known to differ. */
export function wireDialect(type: string): WireDialect {
  return DIALECTS.get(type) ?? PLAIN;
}
