/** The generation of a model, which decides what its interface accepts. Read from the model's name. */
export interface ModelGeneration {
  /** 205 for Gemini 2.5, 306 for Gemini 3.6; 0 for a model that is no Gemini. */
  readonly version: number;
  readonly isPro: boolean;
  readonly isLite: boolean;
}

export const GEMINI_2_5 = 205;
export const GEMINI_3 = 300;
/** From here on Google ignores temperature, topP and topK. */
export const GEMINI_3_6 = 306;

/** Names without a number mean the newest model, except those of Gemini 1.0. */
const FIRST_NAMES = /^gemini-pro(?:-vision)?$/;
const NEWEST = 400;
const VERSION = /gemini-(?:[a-z]+-)?(\d)(?:\.(\d{1,2}))?(?![\d.])/;

/**
 * @param model its name at the provider
 * @param modelId its id in the catalogue, for names of the operator's choice
 */
export function generationOf(model: string, modelId: string = model): ModelGeneration {
  const name = [model, modelId].find((one) => /gemini/i.test(one))?.toLowerCase();
  if (name === undefined) return { version: 0, isPro: false, isLite: false };
  const bare = name.slice(name.lastIndexOf("/") + 1);
  return { version: versionOf(bare), isPro: bare.includes("pro"), isLite: bare.includes("lite") };
}

function versionOf(name: string): number {
  const found = VERSION.exec(name);
  if (found !== null) return Number(found[1]) * 100 + Number(found[2] ?? 0);
  return FIRST_NAMES.test(name) ? 100 : NEWEST;
}
