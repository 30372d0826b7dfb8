import type { FemtoUsd } from "./money.ts";
import type { ModelCategory, TokenKindPrices, UnitPrices } from "./units.ts";

export type { ModelCategory, TokenKindPrices } from "./units.ts";

/** Prices of single tokens in femto-USD. */
export interface TokenPrices {
  readonly inputTokenFemto: FemtoUsd;
  readonly outputTokenFemto: FemtoUsd;
  /** Prompt tokens read from the provider's cache. Equals the input price if the provider has no cache. */
  readonly cachedInputTokenFemto: FemtoUsd;
  /** Prompt tokens written to the provider's cache. Equals the input price if cache writes cost nothing extra. */
  readonly cacheWriteTokenFemto: FemtoUsd;
}

/**
 * Prices of a call whose prompt has more than `beyondTokens` tokens. They apply to all its tokens, output
 * included.
 */
export interface LongPromptPrices extends TokenPrices, TokenKindPrices {
  readonly beyondTokens: number;
}

/** The images of a size and a quality. An absent member matches any size or quality. */
export interface ImageVariant {
  /** Width and height in pixels, such as `1024x1536`. */
  readonly size?: string;
  readonly quality?: string;
  /** Price of one such image, if the model prices images. */
  readonly imageFemto?: FemtoUsd;
  /** Most output tokens of one such image, if the model prices images by tokens. */
  readonly maxTokens?: number;
}

/** Prices in femto-USD. A price is absent if the model does not have this kind of use. */
export interface ModelPrices extends TokenPrices, TokenKindPrices, UnitPrices {
  /** Absent if the length of the prompt does not change the prices. */
  readonly longPrompt?: LongPromptPrices;
  /**
   * Images with different prices or token counts by size or quality. The first match counts. The model's default
   * comes first among the variants that neither the request nor the answer distinguishes.
   */
  readonly imageVariants?: readonly ImageVariant[];
}

/** Prices of one run of the gateway's tools, in femto-USD. */
export type ToolPrices = Required<Pick<ModelPrices, "webSearchFemto" | "fileSearchFemto">>;

/** Prices of fine-tuning a model. */
export interface FineTuningTerms {
  /** One token of the training file in one epoch. */
  readonly trainingTokenFemto: FemtoUsd;
  /** Prices of the fine-tuned models. */
  readonly tunedPrices: ModelPrices;
  /** Absent: built in. */
  readonly priceSource?: PriceSource;
}

/** The origin of prices: the gateway's lists, the provider's own list, the file, or entries that operators stored. */
export type PriceSource = "built_in" | "provider_list" | "file" | "stored";

/** The limits and prices of a call of a model. */
export interface ModelTerms {
  readonly contextLength: number;
  readonly maxOutputTokens: number;
  readonly prices: ModelPrices;
  /** Absent: `built_in`. */
  readonly priceSource?: PriceSource;
  readonly capabilities: readonly string[];
}

/** A provider that serves a model, with its prices and limits. */
export interface ModelEndpoint extends ModelTerms {
  readonly provider: string;
  /** The provider's name of the model. */
  readonly model: string;
  /**
   * Weight of the endpoint among the endpoints of its model, from 0 to 1,000,000, if the configuration states a
   * weight.
   */
  readonly weight?: number;
  /** Most concurrent calls over all instances, if the configuration states it. */
  readonly maxParallelRequests?: number;
  /**
   * Price of the provider's batches here, in 1/10000 of the prices. If absent, the provider's general share
   * applies.
   */
  readonly batchPriceShare?: number;
  /** Set if the configuration forbids batches at this endpoint. */
  readonly takesNoBatches?: true;
}

/** An entry of the catalogue (spec 2.3). It has the prices and limits of its first endpoint. */
export interface CatalogueModel extends ModelTerms {
  /** Id of the model: `author/slug`. */
  readonly id: string;
  readonly name: string;
  readonly description: string;
  /** The provider of the first endpoint. */
  readonly provider: string;
  readonly ownedBy: string;
  readonly category: ModelCategory;
  readonly isActive: boolean;
  /** Time of creation, in Unix seconds. */
  readonly created: number;
  /** Absent if the model cannot be fine-tuned, or if no price for fine-tuning is configured. */
  readonly fineTuning?: FineTuningTerms;
  /** The endpoints, in the order in which they are tried. */
  readonly endpoints: readonly ModelEndpoint[];
  /** Id of the model, if this entry is one provider's endpoint of it. Absent for a model. */
  readonly canonicalId?: string;
}
