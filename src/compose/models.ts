import type { Database } from "../../db/client.ts";
import type { GatewayConfig } from "../config.ts";
import { buildCatalogue, type ProviderReport } from "../providers/catalogue/build-catalogue.ts";
import { createModelIndex, LiveModelIndex } from "../providers/catalogue/model-index.ts";
import { publishSearch } from "../services/models/publish-search.ts";
import type { Telemetry } from "../telemetry/interface.ts";

/** The models that are offered, which can be searched for from then on. */
export async function composeModels(
  config: GatewayConfig,
  sql: Database,
  { log }: Telemetry,
): Promise<LiveModelIndex> {
  const { providers, models, sandbox } = config;
  const catalogue = await buildCatalogue({ providers, models, sandbox, now: new Date() });
  for (const report of catalogue.reports) logReport(log, report);
  const index = new LiveModelIndex(createModelIndex(catalogue));
  await publishSearch(sql, index);
  return index;
}

function logReport(log: Telemetry["log"], report: ProviderReport): void {
  const { provider, models, leftOut, reason } = report;
  const fields = { provider, models, left_out: leftOut.length };
  if (reason === undefined) log.info(fields, `provider ${provider} brings ${models} models`);
  else log.warn(fields, `provider ${provider} brings no models: ${reason}`);
}
