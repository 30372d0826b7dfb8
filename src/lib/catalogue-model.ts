import type { FemtoUsd } from "./money.ts";

/** Where a model can be called: a provider of the configuration and the name the provider knows it by. */
export interface ModelEndpoint {
  readonly provider: string;
  readonly model: string;
}

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
  readonly imageFemto?: FemtoUsd;
  readonly characterFemto?: FemtoUsd;
  readonly secondFemto?: FemtoUsd;
}

/** What a model costs that can be fine-tuned. */
export interface FineTuningTerms {
  /** One token of the training file, once for each epoch. */
  readonly trainingTokenFemto: FemtoUsd;
  /** Of the models that are made of it. */
  readonly tunedPrices: ModelPrices;
}

export type ModelCategory = "chat" | "embedding" | "image" | "code" | "audio";

/** One entry of the catalogue (spec 2.3). */
export interface CatalogueModel {
  /** `author/slug` */
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** Display name of the author's side: the provider of the first endpoint. */
  readonly provider: string;
  readonly ownedBy: string;
  readonly category: ModelCategory;
  readonly contextLength: number;
  readonly maxOutputTokens: number;
  readonly prices: ModelPrices;
  readonly capabilities: readonly string[];
  readonly isActive: boolean;
  /** Unix seconds. */
  readonly created: number;
  /** Absent where it cannot be fine-tuned, or what that costs is not known. */
  readonly fineTuning?: FineTuningTerms;
  /** Tried in order. */
  readonly endpoints: readonly ModelEndpoint[];
}
