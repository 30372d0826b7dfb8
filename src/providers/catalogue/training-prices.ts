import type { FineTuningTerms, ModelPrices } from "../../lib/catalogue-model.ts";
import { femtoFromUsd } from "../../lib/money.ts";

/** USD for a million tokens. */
interface Published {
  readonly training: number;
  readonly input: number;
  readonly cachedInput: number;
  readonly output: number;
}

/**
 * What OpenAI publishes (https://platform.openai.com/docs/pricing, "Fine-tuning"); no list of the
 * packages has prices of training. Compared with copies of that page of August 2026, standard processing
 * without data sharing. Base models are named with their date, as the jobs name them.
 */
const PUBLISHED: Readonly<Record<string, Readonly<Record<string, Published>>>> = {
  openai: {
    "gpt-4.1-2025-04-14": { training: 25, input: 3, cachedInput: 0.75, output: 12 },
    "gpt-4.1-mini-2025-04-14": { training: 5, input: 0.8, cachedInput: 0.2, output: 3.2 },
    "gpt-4.1-nano-2025-04-14": { training: 1.5, input: 0.2, cachedInput: 0.05, output: 0.8 },
    "gpt-4o-2024-08-06": { training: 25, input: 3.75, cachedInput: 1.875, output: 15 },
    "gpt-4o-mini-2024-07-18": { training: 3, input: 0.3, cachedInput: 0.15, output: 1.2 },
    "gpt-3.5-turbo-0125": { training: 8, input: 3, cachedInput: 3, output: 6 },
  },
};

/** What tuning a provider's model costs; undefined where that is not known, so that it is not offered. */
export function publishedTerms(providerType: string, model: string): FineTuningTerms | undefined {
  const ofProvider = Object.hasOwn(PUBLISHED, providerType) ? PUBLISHED[providerType]! : {};
  const published = Object.hasOwn(ofProvider, model) ? ofProvider[model]! : undefined;
  if (published === undefined) return undefined;
  const inputTokenFemto = perToken(published.input);
  const tunedPrices: ModelPrices = {
    inputTokenFemto,
    outputTokenFemto: perToken(published.output),
    cachedInputTokenFemto: perToken(published.cachedInput),
    cacheWriteTokenFemto: inputTokenFemto,
  };
  return { trainingTokenFemto: perToken(published.training), tunedPrices };
}

function perToken(usdForMillion: number): bigint {
  return femtoFromUsd(usdForMillion) / 1_000_000n;
}
