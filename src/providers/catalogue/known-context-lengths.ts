import { type ModelSource, PROVIDER_TYPES } from "../../config/provider-types.ts";
import { canonicalName } from "./canonical-name.ts";
import { loadPriceList } from "./price-list.ts";

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
