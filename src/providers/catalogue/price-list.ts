import type { MatchLogic, ModelInfo } from "@pydantic/genai-prices";
import { type ModelSource, PROVIDER_TYPES } from "../../platform/config/provider-types.ts";
import { canonicalName } from "./canonical-name.ts";

/** Matches the part of a versioned name that follows a model's id. */
const VERSION = String.raw`-(\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{8}|\d{4}|latest|chat-latest)$`;
const VERSION_SUFFIX = new RegExp(`^${VERSION}`);
const VERSION_AT_END = new RegExp(VERSION);

/** Returns the name without its version, or unchanged if it has none. */
export function withoutVersion(name: string): string {
  return name.replace(VERSION_AT_END, "");
}

/** The published prices of one provider. */
export interface PriceList {
  /** The names under which the provider is known to accept requests. */
  readonly names: readonly string[];
  /** Returns the entry with the prices of a model. */
  find(name: string): ModelInfo | undefined;
}

/**
 * Loads the price list of a provider. The package is only loaded when needed, because it takes 15 MB and 25 ms.
 * @param providerId the provider's name in the package
 */
async function loadPriceList(providerId: string): Promise<PriceList> {
  const { calcPrice, findProvider } = await import("@pydantic/genai-prices");
  const models = findProvider({ providerId })?.models ?? [];
  const byName = new Map<string, ModelInfo>();
  for (const model of models) {
    for (const name of statedNames(model.match)) if (!byName.has(name)) byName.set(name, model);
  }
  const find = (name: string) =>
    byName.get(name) ?? calcPrice({}, name, { providerId })?.model ?? undefined;
  return { names: models.flatMap((model) => requestNames(model, find)), find };
}

/** Loads two price lists as one. The second is used for names that the first does not have. */
export async function loadPriceLists(
  providerId: string,
  fallbackId: string | undefined,
): Promise<PriceList> {
  const list = await loadPriceList(providerId);
  if (fallbackId === undefined) return list;
  const fallback = await loadPriceList(fallbackId);
  const names = new Set(list.names);
  return {
    names: [...names, ...fallback.names.filter((name) => !names.has(name))],
    // Rules of the first list can mistake a newer version for an older one.
    find: (name) => (names.has(name) ? undefined : fallback.find(name)) ?? list.find(name),
  };
}

/** Returns the names that a rule of the list states in full. */
export function statedNames(match: MatchLogic): string[] {
  if ("or" in match) return match.or.flatMap(statedNames);
  return "equals" in match ? [match.equals] : [];
}

/**
 * Returns an entry's id with its dated versions. Rules also list spellings that only appear in answers or at other
 * providers. They only count if the id itself is not a valid name.
 */
function requestNames(model: ModelInfo, find: PriceList["find"]): string[] {
  const stated = statedNames(model.match);
  if (find(model.id) !== model) return stated;
  const versions = stated.filter(
    (name) => name.startsWith(model.id) && VERSION_SUFFIX.test(name.slice(model.id.length)),
  );
  return [model.id, ...versions];
}

let contextLengths: Promise<ReadonlyMap<string, number>> | undefined;

/**
 * Returns the longest context window that any provider in the price list states for the same weights. It bounds the
 * cost of a request if the provider's own is not published. Undefined if none is known.
 */
export async function knownContextLength(
  typeName: string,
  source: ModelSource,
  name: string,
): Promise<number | undefined> {
  const canonical = canonicalName(typeName, source.isAuthor === true, name);
  if (canonical === undefined) return undefined;
  contextLengths ??= readContextLengths();
  return (await contextLengths).get(`${canonical.author}/${canonical.slug}`);
}

async function readContextLengths(): Promise<Map<string, number>> {
  const lengths = new Map<string, number>();
  for (const [typeName, type] of Object.entries(PROVIDER_TYPES)) {
    if (type.genaiPricesId === undefined) continue;
    const list = await loadPriceList(type.genaiPricesId);
    for (const name of list.names) {
      const canonical = canonicalName(typeName, type.isAuthor === true, name);
      const length = list.find(name)?.context_window ?? 0;
      if (canonical === undefined || length === 0) continue;
      const id = `${canonical.author}/${canonical.slug}`;
      lengths.set(id, Math.max(lengths.get(id) ?? 0, length));
    }
  }
  return lengths;
}
