import type {
  CapabilityEntry,
  CapabilityModule,
} from "../../platform/config/provider-types/definition.ts";

export type { CapabilityEntry };

export type CapabilityList = ReadonlyMap<string, CapabilityEntry>;

/** Returns the capabilities of a provider's models. */
export async function loadCapabilities(
  load: (() => Promise<CapabilityModule>) | undefined,
): Promise<CapabilityList> {
  const module = await load?.();
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
