import { asksForModels } from "../config/provider-types.ts";
import type { GatewayConfig } from "../config.ts";
import { buildCatalogue, type Catalogue } from "../providers/catalogue/build-catalogue.ts";
import { readKeptLists } from "../providers/catalogue/model-list-cache.ts";

/**
 * The catalogue of a gateway of this configuration and DATA_DIR, with what it has read of its providers'
 * own lists of models. Asks no provider. Throws ConfigError.
 */
export async function knownCatalogue(
  {
    providers,
    models,
    sandbox,
    dataDir,
  }: Pick<GatewayConfig, "providers" | "models" | "sandbox" | "dataDir">,
  nowMs: number,
): Promise<Catalogue> {
  const asked = providers.filter(({ type }) => asksForModels(type));
  const kept = await readKeptLists(dataDir, asked, nowMs);
  const discovered = new Map([...kept].map(([id, list]) => [id, list.models]));
  const now = new Date(nowMs);
  return buildCatalogue({ providers, models, sandbox, now, discovered });
}
