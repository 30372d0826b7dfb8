import type { CatalogueModel, ModelPrices } from "../../../lib/catalogue-model.ts";
import { ConfigFaults } from "../../../platform/config/config-error.ts";
import { readConfigFile } from "../../../platform/config/file.ts";
import { readOutboundProxies } from "../../../platform/config/outbound-proxies.ts";
import { requestsModelList } from "../../../platform/config/provider-types.ts";
import { enabledProviders, type ProviderConfig } from "../../../platform/config/providers.ts";
import { askModelList } from "../../../providers/catalogue/ask-model-list.ts";
import { builtInModels } from "../../../providers/catalogue/provider-models.ts";
import { type DiscoveredModel, modelPrices } from "../../../providers/catalogue/read-model-list.ts";
import { createHttpClient } from "../../../providers/transport/http-client.ts";
import type { HttpClient } from "../../../providers/transport/provider-response.ts";
import type { Command, CommandContext } from "../command.ts";
import { renderTable } from "../print.ts";

/** The prices that both lists can state, with their names in the output. */
const UNITS: readonly (readonly [name: string, of: keyof ModelPrices])[] = [
  ["input", "inputTokenFemto"],
  ["cached input", "cachedInputTokenFemto"],
  ["cache write", "cacheWriteTokenFemto"],
  ["output", "outputTokenFemto"],
];
/** Femto-USD a token in one USD a million tokens. */
const FEMTO_A_MILLION = 1e9;

interface PriceRow {
  readonly provider: string;
  readonly model: string;
  readonly unit: string;
  /** USD per million tokens. */
  readonly builtIn: number;
  readonly list: number;
}

/** The result of one provider. `reason` says why nothing was compared. */
interface Comparison {
  readonly provider: string;
  readonly compared: number;
  readonly reason?: string;
  readonly rows: readonly PriceRow[];
}

/** Requests the lists of the configured providers. */
export const prices: Command = {
  noun: "models",
  verb: "prices",
  summary:
    "Compares built-in prices with those in the providers' own model lists, which it requests.",
  options: {
    provider: { value: "NAME", meaning: "only this provider" },
    diff: { meaning: "only prices that differ" },
  },
  run: async ({ options }, context) => {
    const isDiff = options.diff !== undefined;
    const client = createHttpClient({ proxies: readOutboundProxies(context.environment) });
    const providers = configuredProviders(context).filter(
      ({ id }) => (options.provider ?? id) === id,
    );
    const now = new Date(context.nowMs());
    const all = await Promise.all(providers.map((provider) => compare(provider, client, now)));
    const rows = all
      .flatMap((one) => one.rows)
      .filter(({ builtIn, list }) => !isDiff || builtIn !== list);
    const headings = ["PROVIDER", "MODEL", "PRICE", "BUILT IN/M", "LIST/M"];
    const cells = rows.map((row) => [
      ...[row.provider, row.model, row.unit],
      ...[String(row.builtIn), String(row.list)],
    ]);
    const none = isDiff ? "No price differs." : "No prices to compare.";
    return {
      data: {
        object: "list",
        data: rows.map(({ builtIn, list, ...row }) => ({
          ...row,
          built_in_usd_per_million: builtIn,
          list_usd_per_million: list,
        })),
        providers: all.map(({ rows: _, ...one }) => one),
      },
      text: [renderTable(headings, cells, none), ...all.map(describe)].join("\n"),
    };
  },
};

function configuredProviders({ environment, cwd }: CommandContext): ProviderConfig[] {
  const faults = new ConfigFaults();
  const file = readConfigFile(environment, cwd, faults);
  const providers = enabledProviders(environment, file, faults);
  faults.throwAny();
  return providers;
}

async function compare(
  provider: ProviderConfig,
  client: HttpClient,
  now: Date,
): Promise<Comparison> {
  const { id, type } = provider;
  const nothing = (reason: string): Comparison => ({ provider: id, compared: 0, reason, rows: [] });
  if (!requestsModelList(type)) return nothing("it has no list of models");
  let listed: readonly DiscoveredModel[];
  try {
    listed = await askModelList(client, provider);
  } catch (error) {
    return nothing(error instanceof Error ? error.message : String(error));
  }
  const { models } = await builtInModels(type, now);
  const builtIn = new Map(models.map((model) => [model.endpoints[0]!.model, model]));
  const pairs = listed.flatMap(({ name, prices: stated }) => {
    const model = builtIn.get(name);
    return model === undefined || stated === undefined ? [] : [{ name, model, stated }];
  });
  if (pairs.length === 0) return nothing("its list states no prices of built-in models");
  const rows = pairs.flatMap(({ name, model, stated }) =>
    rowsOf(id, name, model, modelPrices(stated)),
  );
  return { provider: id, compared: pairs.length, rows };
}

function rowsOf(
  provider: string,
  model: string,
  { prices: builtIn }: CatalogueModel,
  list: ModelPrices,
): PriceRow[] {
  return UNITS.map(([unit, of]) => ({
    ...{ provider, model, unit },
    builtIn: perMillion(builtIn[of] as bigint),
    list: perMillion(list[of] as bigint),
  }));
}

function perMillion(femto: bigint): number {
  return Number(femto) / FEMTO_A_MILLION;
}

function describe({ provider, compared, reason }: Comparison): string {
  return reason === undefined
    ? `${provider}: ${compared} models compared.`
    : `${provider}: not compared, ${reason}.`;
}
