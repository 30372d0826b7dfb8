import type { CatalogueModel, ModelEndpoint } from "../../lib/catalogue-model.ts";
import type { PriceConfig } from "../../platform/config/file.ts";
import { overriddenPrices, overriddenTuning } from "./file-model.ts";

/**
 * Returns the model with the price entries that apply to it at a time. An entry for one provider comes before an entry
 * for all, and then the entry with the latest beginning counts.
 */
export function withPrices(
  model: CatalogueModel,
  byModel: ReadonlyMap<string, readonly PriceConfig[]>,
  nowMs: number,
): CatalogueModel {
  const { id, canonicalId = id } = model;
  const entries = [
    ...(byModel.get(id) ?? []),
    ...(canonicalId === id ? [] : (byModel.get(canonicalId) ?? [])),
  ];
  const applying = entries.filter((entry) => beginsMs(entry) <= nowMs);
  if (applying.length === 0) return model;
  const endpoints = model.endpoints.map((endpoint): ModelEndpoint => {
    const entry = entryFor(endpoint, applying);
    if (entry === undefined) return endpoint;
    return { ...endpoint, ...overriddenPrices(entry, endpoint.prices, model) };
  });
  const [first] = endpoints;
  if (first === undefined) return model;
  const { prices, priceSource } = first;
  const overridden = {
    ...model,
    endpoints,
    prices,
    ...(priceSource !== undefined && { priceSource }),
  };
  const entry = entryFor(first, applying);
  const fineTuning = entry && overriddenTuning(entry, overridden);
  return { ...overridden, ...(fineTuning !== undefined && { fineTuning }) };
}

/** Returns the time of the next change of prices, in milliseconds since the epoch. Undefined if none is to come. */
export function nextPriceChangeMs(
  entries: readonly PriceConfig[],
  nowMs: number,
): number | undefined {
  const later = entries.map(beginsMs).filter((atMs) => atMs > nowMs);
  return later.length === 0 ? undefined : Math.min(...later);
}

function entryFor(
  { provider }: ModelEndpoint,
  entries: readonly PriceConfig[],
): PriceConfig | undefined {
  const exact = entries.filter((entry) => entry.provider === provider);
  const candidates =
    exact.length > 0 ? exact : entries.filter((entry) => entry.provider === undefined);
  return candidates.toSorted((left, right) => beginsMs(right) - beginsMs(left))[0];
}

function beginsMs({ valid_from: time }: PriceConfig): number {
  return time === undefined ? Number.NEGATIVE_INFINITY : Date.parse(time);
}
