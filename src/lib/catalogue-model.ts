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

/** Prices of single tokens that cost what those of text do where these are absent, in femto-USD. */
export interface TokenKindPrices {
  /** Prompt tokens written to a cache that lasts an hour; where it is absent, requests for one are refused. */
  readonly cacheWriteHourTokenFemto?: FemtoUsd;
  readonly reasoningTokenFemto?: FemtoUsd;
  readonly audioInputTokenFemto?: FemtoUsd;
  readonly cachedAudioInputTokenFemto?: FemtoUsd;
  readonly audioOutputTokenFemto?: FemtoUsd;
  readonly imageInputTokenFemto?: FemtoUsd;
  readonly cachedImageInputTokenFemto?: FemtoUsd;
  readonly imageOutputTokenFemto?: FemtoUsd;
}

/** What all tokens of a call cost, those of the answer too, whose prompt has more tokens than `beyondTokens`. */
export interface LongPromptPrices extends TokenPrices, TokenKindPrices {
  readonly beyondTokens: number;
}

/** The images of a size and a quality. Absent, each of them stands for any. */
export interface ImageVariant {
  /** In pixels: `1024x1536`. */
  readonly size?: string;
  readonly quality?: string;
  /** One such image, where images have a price of their own. */
  readonly imageFemto?: FemtoUsd;
  /** The most output tokens that one such image has, where images are priced by tokens. */
  readonly maxTokens?: number;
}

/** Prices in femto-USD; absent means that the model has no such kind of use. */
export interface ModelPrices extends TokenPrices, TokenKindPrices {
  /** Absent where the length of the prompt makes no difference. */
  readonly longPrompt?: LongPromptPrices;
  /** One image that no variant fits. Lists of models show it, and routing by price compares it. */
  readonly imageFemto?: FemtoUsd;
  /**
   * Images whose size or quality decides the price, or the tokens. The first that fits counts, so of variants
   * that neither the request nor the answer tells apart the model's default comes first.
   */
  readonly imageVariants?: readonly ImageVariant[];
  /** A pixel of an image that is made, where those are what is priced. */
  readonly imagePixelFemto?: FemtoUsd;
  /** An image that comes with the request, a mask included. */
  readonly inputImageFemto?: FemtoUsd;
  readonly characterFemto?: FemtoUsd;
  readonly secondFemto?: FemtoUsd;
  /** What sound that is priced by the second costs at least, however short it is. */
  readonly leastSoundFemto?: FemtoUsd;
  /** A second of sound whose speakers are distinguished, on top of the others. */
  readonly speakersSecondFemto?: FemtoUsd;
  /** One search by the provider's own tools, which requests cannot bring, or by the gateway's (`pricedForTools`). */
  readonly webSearchFemto?: FemtoUsd;
  readonly fileSearchFemto?: FemtoUsd;
  /** What a ranking of documents is billed by: a query with up to 100 pieces of them. */
  readonly searchUnitFemto?: FemtoUsd;
  /** A fee for each call, whatever its tokens. */
  readonly requestFemto?: FemtoUsd;
}

/** What one run of the gateway's own tools costs, in femto-USD. */
export type ToolPrices = Required<Pick<ModelPrices, "webSearchFemto" | "fileSearchFemto">>;

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
  /** Calls that may run there at once, over all instances, where the configuration states it. */
  readonly maxParallelRequests?: number;
  /** What the provider's batches cost here of the prices, in 1/10000; absent: what they cost elsewhere. */
  readonly batchPriceShare?: number;
  /** The configuration states that requests are not sent there in batches. */
  readonly takesNoBatches?: true;
}

export const MODEL_CATEGORIES = [
  "chat",
  "embedding",
  "image",
  "code",
  "audio",
  "rerank",
  "moderation",
] as const;

export type ModelCategory = (typeof MODEL_CATEGORIES)[number];

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
