import { mkdir, open, readFile, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { MODEL_CATEGORIES } from "../../lib/units.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import { type DiscoveredModel, MAX_LISTED_MODELS, membersOf } from "./read-model-list.ts";

const FILE = "model-lists.json";
const VERSION = 1;
const MAX_FILE_BYTES = 32 * 1024 * 1024;
/** Prices of an older list are no longer trusted. */
const MAX_AGE_MS = 7 * 86_400_000;
const CATEGORIES: readonly unknown[] = MODEL_CATEGORIES;
const PRICES: readonly unknown[] = ["input", "output", "cachedInput", "cacheWrite"];
const FEMTO = /^\d{1,16}$/;

export type ModelLists = ReadonlyMap<string, readonly DiscoveredModel[]>;

/** A provider's list as it was last read. */
export interface StoredModelList {
  readonly models: readonly DiscoveredModel[];
  readonly readAtMs: number;
}

/**
 * Returns the lists of these providers that an earlier run stored, if their URLs are unchanged. Never rejects: a file
 * that is missing, broken or too large contains no lists.
 */
export async function readStoredLists(
  dataDir: string,
  providers: readonly ProviderConfig[],
  nowMs: number,
): Promise<Map<string, StoredModelList>> {
  const result = new Map<string, StoredModelList>();
  const path = join(dataDir, FILE);
  try {
    if ((await stat(path)).size > MAX_FILE_BYTES) return result;
    const file = membersOf(JSON.parse(await readFile(path, "utf8")));
    if (file?.version !== VERSION) return result;
    const lists = membersOf(file.lists) ?? {};
    for (const provider of providers) {
      const list = Object.hasOwn(lists, provider.id) ? membersOf(lists[provider.id]) : undefined;
      if (list === undefined || list.source !== sourceOf(provider)) continue;
      const { models, read_at_ms: readAtMs } = list;
      if (typeof readAtMs !== "number" || !(nowMs - readAtMs < MAX_AGE_MS)) continue;
      if (!Array.isArray(models) || models.length > MAX_LISTED_MODELS) continue;
      if (models.every(isDiscoveredModel)) result.set(provider.id, { models, readAtMs });
    }
  } catch {
    // Lists that cannot be read from the file are requested again.
  }
  return result;
}

/** Stores the lists for the next start, atomically. */
export async function storeLists(
  dataDir: string,
  providers: readonly ProviderConfig[],
  lists: ReadonlyMap<string, StoredModelList>,
): Promise<void> {
  const entries = providers.flatMap((provider) => {
    const list = lists.get(provider.id);
    if (list === undefined) return [];
    const { models, readAtMs: read_at_ms } = list;
    return [[provider.id, { source: sourceOf(provider), read_at_ms, models }] as const];
  });
  const path = join(dataDir, FILE);
  const unfinished = `${path}.${process.pid}.unfinished`;
  await mkdir(dirname(path), { recursive: true });
  const file = await open(unfinished, "w", 0o600);
  try {
    await file.writeFile(JSON.stringify({ version: VERSION, lists: Object.fromEntries(entries) }));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(unfinished, path);
}

/** Returns a key that changes if the provider's URL or its type changes, and with it the format of the list. */
function sourceOf({ type, baseUrl }: ProviderConfig): string {
  return `${type} ${new Bun.CryptoHasher("sha256").update(baseUrl).digest("hex")}`;
}

function isDiscoveredModel(value: unknown): value is DiscoveredModel {
  const model = membersOf(value);
  if (model === undefined || typeof model.name !== "string") return false;
  const { prices, contextLength, maxOutputTokens, unmeteredKind, capabilities, created } = model;
  const { baseName, unusable } = model;
  const stated = prices === undefined ? {} : membersOf(prices);
  return (
    CATEGORIES.includes(model.category) &&
    isCountOrAbsent(contextLength) &&
    isCountOrAbsent(maxOutputTokens) &&
    [unmeteredKind, baseName, unusable].every(
      (text) => text === undefined || typeof text === "string",
    ) &&
    Array.isArray(capabilities) &&
    capabilities.every((capability) => typeof capability === "string") &&
    Number.isSafeInteger(created) &&
    stated !== undefined &&
    (prices === undefined || ("input" in stated && "output" in stated)) &&
    Object.entries(stated).every(
      ([kind, femto]) => PRICES.includes(kind) && typeof femto === "string" && FEMTO.test(femto),
    )
  );
}

function isCountOrAbsent(value: unknown): boolean {
  return value === undefined || (Number.isSafeInteger(value) && (value as number) > 0);
}
