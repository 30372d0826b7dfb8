import type { MatchLogic, ModelInfo } from "@pydantic/genai-prices";
import { type ModelSource, PROVIDER_TYPES } from "../../platform/config/provider-types.ts";
import { canonicalName } from "./canonical-name.ts";

/** What follows a model's id in the name of one of its fixed versions. */
const VERSION = String.raw`-(\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{8}|\d{4}|latest|chat-latest)$`;
const VERSION_SUFFIX = new RegExp(`^${VERSION}`);
const VERSION_AT_END = new RegExp(VERSION);

/** The name of a model for that of one of its fixed versions; of any other the same. */
export function withoutVersion(name: string): string {
  return name.replace(VERSION_AT_END, "");
}

/** The published prices of one provider. */
export interface PriceList {
  /** The names under which the provider is known to take requests. */
  readonly names: readonly string[];
  /** The entry that prices the model of that name. */
  find(name: string): ModelInfo | undefined;
}

/**
 * Loads the price list when it is first needed, because the package takes 15 MB and 25 ms.
 * @param providerId its name there
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

/** As one list: what the first has no entry for is looked for in the other. */
export async function loadPriceLists(
  providerId: string,
  otherId: string | undefined,
): Promise<PriceList> {
  const list = await loadPriceList(providerId);
  if (otherId === undefined) return list;
  const other = await loadPriceList(otherId);
  const names = new Set(list.names);
  return {
    names: [...names, ...other.names.filter((name) => !names.has(name))],
    // Rules of the first may take a newer version for an older one.
    find: (name) => (names.has(name) ? undefined : other.find(name)) ?? list.find(name),
  };
}

/** The names that a rule of the list gives in full. */
export function statedNames(match: MatchLogic): string[] {
  if ("or" in match) return match.or.flatMap(statedNames);
  return "equals" in match ? [match.equals] : [];
}

/**
 * An entry's own id with its dated versions. Rules also list spellings that only appear in answers or at
 * other providers; they count where the id itself is no name at all.
 */
function requestNames(model: ModelInfo, find: PriceList["find"]): string[] {
  const stated = statedNames(model.match);
  if (find(model.id) !== model) return stated;
  const versions = stated.filter(
    (name) => name.startsWith(model.id) && VERSION_SUFFIX.test(name.slice(model.id.length)),
  );
  return [model.id, ...versions];
}

let known: Promise<ReadonlyMap<string, number>> | undefined;

/**
 * The longest context window that any provider of the price list gives the same weights: a bound of what a
 * request can cost where the provider's own is not published. Undefined where none is known.
 */
export async function knownContextLength(
  typeName: string,
  source: ModelSource,
  name: string,
): Promise<number | undefined> {
  const canonical = canonicalName(typeName, source.isAuthor === true, name);
  if (canonical === undefined) return undefined;
  known ??= readContextLengths();
  return (await known).get(`${canonical.author}/${canonical.slug}`);
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
