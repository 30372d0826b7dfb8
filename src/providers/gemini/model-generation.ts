/** The generation of a model, which decides what its API accepts. Derived from the model's name. */
export interface ModelGeneration {
  /** 205 for Gemini 2.5, 306 for Gemini 3.6, 0 for a model other than Gemini. */
  readonly version: number;
  readonly isPro: boolean;
  readonly isLite: boolean;
}

export const GEMINI_2_5 = 205;
export const GEMINI_3 = 300;
/** First version for which Google ignores temperature, topP and topK. */
export const GEMINI_3_6 = 306;

/** Names of Gemini 1.0. All other names without a number mean the newest model. */
const FIRST_NAMES = /^gemini-pro(?:-vision)?$/;
const NEWEST = 400;
const VERSION = /gemini-(?:[a-z]+-)?(\d)(?:\.(\d{1,2}))?(?![\d.])/;

/**
 * Returns the generation of a model.
 *
 * @param model its name at the provider
 * @param modelId its id in the catalogue, for names of the operator's choice
 */
export function generationOf(model: string, modelId: string = model): ModelGeneration {
  const name = [model, modelId].find((candidate) => /gemini/i.test(candidate))?.toLowerCase();
  if (name === undefined) return { version: 0, isPro: false, isLite: false };
  const bare = name.slice(name.lastIndexOf("/") + 1);
  return { version: versionOf(bare), isPro: bare.includes("pro"), isLite: bare.includes("lite") };
}

function versionOf(name: string): number {
  const match = VERSION.exec(name);
  if (match !== null) return Number(match[1]) * 100 + Number(match[2] ?? 0);
  return FIRST_NAMES.test(name) ? 100 : NEWEST;
}
