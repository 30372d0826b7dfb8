import type { Database } from "../../db/client.ts";
import type { GatewayConfig } from "../config.ts";
import { buildCatalogue } from "../providers/catalogue/build-catalogue.ts";
import { createModelIndex, type ModelIndex } from "../providers/catalogue/model-index.ts";
import { publishSearch } from "../services/models/publish-search.ts";

/** The models that are offered, which can be searched for from then on. */
export async function composeModels(config: GatewayConfig, sql: Database): Promise<ModelIndex> {
  const { providers, models, sandbox } = config;
  const now = new Date();
  const index = createModelIndex(await buildCatalogue({ providers, models, sandbox, now }));
  await publishSearch(sql, index);
  return index;
}
