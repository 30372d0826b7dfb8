import type { GatewayConfig } from "../config.ts";
import type { HostedServices } from "../endpoints/responses/hosted-tools.ts";
import { FileSearchTools } from "../tools/file-search.ts";
import { ToolRegistry } from "../tools/registry.ts";
import { readFilter } from "../vector-stores/filters.ts";
import type { VectorStores } from "../vector-stores/vector-stores.ts";

const FEMTO_PER_NANO = 1_000_000n;

/** The tools that the gateway runs for models. */
export function composeTools(options: {
  readonly config: GatewayConfig;
  readonly stores: VectorStores;
}): HostedServices {
  const { config, stores } = options;
  const registry = new ToolRegistry([
    new FileSearchTools({
      readFilter,
      assertSearchable: (...asked) => stores.assertSearchable(...asked),
      searchAll: (...asked) => stores.searchAll(...asked),
    }),
  ]);
  const prices = {
    webSearchFemto: config.webSearchNanoUsd * FEMTO_PER_NANO,
    fileSearchFemto: config.fileSearchNanoUsd * FEMTO_PER_NANO,
  };
  return { registry, prices };
}
