import { didYouMean } from "../../lib/nearest-names.ts";
import { ConfigError, type ConfigFaults } from "../../platform/config/config-error.ts";
import { providerType, requestsModelList } from "../../platform/config/provider-types.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import type { ConfiguredModels } from "../../platform/config.ts";
import { buildCatalogue, type Catalogue, isNamedInFile } from "./build-catalogue.ts";
import { createModelIndex } from "./model-index.ts";
import { type ModelLists, readStoredLists } from "./model-list-cache.ts";

/**
 * Returns the catalogue of a gateway with this configuration and DATA_DIR, with the model lists of its providers that
 * it has stored. Sends no request. Throws ConfigError if the configuration is invalid.
 */
export async function configuredCatalogue(
  config: Omit<ConfiguredModels, "modelListsSeconds">,
  nowMs: number,
): Promise<Catalogue> {
  const { providers, models, prices, sandbox } = config;
  const discovered = await storedLists(config, nowMs);
  return buildCatalogue({ providers, models, prices, sandbox, now: new Date(nowMs), discovered });
}

/** Adds the faults of the models and aliases in the configuration file to `faults`. */
export async function checkFileModels(
  config: ConfiguredModels,
  faults: ConfigFaults,
  nowMs: number = Date.now(),
): Promise<void> {
  const { providers, models, prices, sandbox, modelListsSeconds } = config;
  const readsLists = modelListsSeconds > 0;
  const discovered: ModelLists = readsLists ? await storedLists(config, nowMs) : new Map();
  const now = new Date(nowMs);
  const catalogue = await buildCatalogue({
    ...{ providers, models, prices, sandbox, now, discovered, faults },
  });
  const unread = providers.filter(
    (provider) =>
      readsLists &&
      requestsModelList(provider.type) &&
      !discovered.has(provider.id) &&
      !isNamedInFile(provider, models),
  );
  const index = createModelIndex(catalogue);
  const ids = index.all().map(({ id }) => id);
  // An entry with a fault is only reported once.
  const ofFile = new Set(models.map(({ id }) => id));
  for (const { id, alias_of: target, source } of models) {
    if (target === undefined || ofFile.has(target)) continue;
    if (index.resolve(target) !== undefined) continue;
    if (unread.some((provider) => mayList(provider, target))) continue;
    const problem = `${source} (${id}) is an alias of ${target}, which is not a model`;
    faults.add(new ConfigError(`${problem} of this gateway${didYouMean(target, ids)}`));
  }
}

/** Returns true if the provider's model list, which has not been read yet, could contain a model of that name. */
function mayList({ id, type }: ProviderConfig, name: string): boolean {
  if (providerType(type)?.isAuthor !== true || !name.includes("/")) return true;
  return name.startsWith(`${id}/`) || name.startsWith(`${type}/`);
}

async function storedLists(
  { providers, dataDir }: Pick<ConfiguredModels, "providers" | "dataDir">,
  nowMs: number,
): Promise<ModelLists> {
  const queried = providers.filter(({ type }) => requestsModelList(type));
  const stored = await readStoredLists(dataDir, queried, nowMs);
  return new Map([...stored].map(([id, list]) => [id, list.models]));
}
