import type { ModelTerms } from "../../lib/catalogue-model.ts";
import { femtoFromUsd } from "../../lib/money.ts";

/** A model that ranks, moderates or embeds texts, and that no list of the packages prices. */
interface StatedText {
  readonly category: "rerank" | "moderation" | "embedding";
  readonly name: string;
  readonly displayName: string;
  readonly contextLength: number;
  /** Price in USD: for a thousand search units, or for a million tokens. */
  readonly price: { readonly searches: number } | { readonly tokens: number };
}

const ranker = (
  name: string,
  displayName: string,
  contextLength: number,
  searches: number,
): StatedText => ({
  ...{ category: "rerank", name, displayName, contextLength },
  price: { searches },
});

const moderator = (
  name: string,
  displayName: string,
  contextLength: number,
  tokens: number,
): StatedText => ({
  ...{ category: "moderation", name, displayName, contextLength },
  price: { tokens },
});

/** Returns an embedding model of Cohere's third version, which accepts 512 tokens. */
const thirdEmbedder = (name: string, displayName: string): StatedText => ({
  ...{ category: "embedding", name, displayName, contextLength: 512 },
  price: { tokens: 0.1 },
});

const MODELS: Readonly<Record<string, readonly StatedText[]>> = {
  // https://platform.openai.com/docs/guides/moderation: free of charge.
  openai: [
    moderator("omni-moderation-latest", "Omni moderation", 32_768, 0),
    moderator("omni-moderation-2024-09-26", "Omni moderation 2024-09-26", 32_768, 0),
  ],
  // https://mistral.ai/pricing#api-pricing
  mistral: [moderator("mistral-moderation-latest", "Mistral Moderation", 8_192, 0.1)],
  // https://cohere.com/pricing, https://docs.cohere.com/docs/models#rerank
  cohere: [
    ranker("rerank-v4.0-pro", "Rerank 4 Pro", 32_000, 2.5),
    ranker("rerank-v4.0-fast", "Rerank 4 Fast", 32_000, 2),
    ranker("rerank-v3.5", "Rerank 3.5", 4_096, 2),
    ranker("rerank-english-v3.0", "Rerank 3 English", 4_096, 2),
    ranker("rerank-multilingual-v3.0", "Rerank 3 Multilingual", 4_096, 2),
    // https://docs.cohere.com/docs/models#embed: 1,024 dimensions, the light models 384.
    thirdEmbedder("embed-english-v3.0", "Embed 3 English"),
    thirdEmbedder("embed-multilingual-v3.0", "Embed 3 Multilingual"),
    thirdEmbedder("embed-english-light-v3.0", "Embed 3 English Light"),
    thirdEmbedder("embed-multilingual-light-v3.0", "Embed 3 Multilingual Light"),
  ],
};

export function statedTexts(typeName: string): readonly (Pick<
  StatedText,
  "category" | "name" | "displayName"
> & {
  readonly terms: ModelTerms;
})[] {
  return (MODELS[typeName] ?? []).map(({ price, contextLength, ...named }) => {
    const inputTokenFemto = "tokens" in price ? femtoFromUsd(price.tokens) / 1_000_000n : 0n;
    const prices = {
      inputTokenFemto,
      outputTokenFemto: 0n,
      cachedInputTokenFemto: inputTokenFemto,
      cacheWriteTokenFemto: inputTokenFemto,
      ...("searches" in price && { searchUnitFemto: femtoFromUsd(price.searches) / 1_000n }),
    };
    return { ...named, terms: { contextLength, maxOutputTokens: 0, prices, capabilities: [] } };
  });
}
