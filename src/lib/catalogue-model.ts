import type { FemtoUsd } from "./money.ts";

/** Prices of single tokens in femto-USD. */
export interface TokenPrices {
  readonly inputTokenFemto: FemtoUsd;
  readonly outputTokenFemto: FemtoUsd;
  /** Prompt tokens read from the provider's cache; the input price where the provider has no cache. */
  readonly cachedInputTokenFemto: FemtoUsd;
  /** Prompt tokens written to the provider's cache; the input price where it costs nothing extra. */
  readonly cacheWriteTokenFemto: FemtoUsd;
}

/** What all tokens of a call cost, those of the answer too, whose prompt has more tokens than `beyondTokens`. */
export interface LongPromptPrices extends TokenPrices {
  readonly beyondTokens: number;
}

/** Prices in femto-USD; absent means that the model has no such kind of use. */
export interface ModelPrices extends TokenPrices {
  /** Absent where the length of the prompt makes no difference. */
  readonly longPrompt?: LongPromptPrices;
  /** Prompt tokens written to a cache that lasts an hour; where it is absent, requests for one are refused. */
  readonly cacheWriteHourTokenFemto?: FemtoUsd;
  /** Absent where reasoning costs what the rest of the answer does. */
  readonly reasoningTokenFemto?: FemtoUsd;
  /** Tokens of sound and images, where they do not cost what tokens of text do. */
  readonly audioInputTokenFemto?: FemtoUsd;
  readonly cachedAudioInputTokenFemto?: FemtoUsd;
  readonly audioOutputTokenFemto?: FemtoUsd;
  readonly imageInputTokenFemto?: FemtoUsd;
  readonly cachedImageInputTokenFemto?: FemtoUsd;
  readonly imageOutputTokenFemto?: FemtoUsd;
  readonly imageFemto?: FemtoUsd;
  readonly characterFemto?: FemtoUsd;
  readonly secondFemto?: FemtoUsd;
  /** One search by the provider's own tools; requests that bring those are refused. */
  readonly webSearchFemto?: FemtoUsd;
  readonly fileSearchFemto?: FemtoUsd;
  /** A fee for each call, whatever its tokens. */
  readonly requestFemto?: FemtoUsd;
}

/** What a model costs that can be fine-tuned. */
export interface FineTuningTerms {
  /** One token of the training file, once for each epoch. */
  readonly trainingTokenFemto: FemtoUsd;
  /** Of the models that are made of it. */
  readonly tunedPrices: ModelPrices;
}

/** What a call of a model is bounded and billed by. */
export interface ModelTerms {
  readonly contextLength: number;
  readonly maxOutputTokens: number;
  readonly prices: ModelPrices;
  readonly capabilities: readonly string[];
}

/** Where a model can be called: a provider of the configuration, with the prices and limits there. */
export interface ModelEndpoint extends ModelTerms {
  readonly provider: string;
  /** The name the provider knows the model by. */
  readonly model: string;
  /** Its share of the calls where the configuration states one. */
  readonly weight?: number;
}

export type ModelCategory = "chat" | "embedding" | "image" | "code" | "audio";

/** One entry of the catalogue (spec 2.3). Its own terms are those of its first endpoint. */
export interface CatalogueModel extends ModelTerms {
  /** `author/slug` */
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** The provider of the first endpoint. */
  readonly provider: string;
  readonly ownedBy: string;
  readonly category: ModelCategory;
  readonly isActive: boolean;
  /** Unix seconds. */
  readonly created: number;
  /** Absent where it cannot be fine-tuned, or what that costs is not known. */
  readonly fineTuning?: FineTuningTerms;
  /** Tried in order. */
  readonly endpoints: readonly ModelEndpoint[];
  /** The model that this is one provider's endpoint of; absent where it is a model of its own. */
  readonly canonicalId?: string;
}
