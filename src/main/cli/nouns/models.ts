import { ConfigFaults } from "../../../platform/config/config-error.ts";
import { readConfigFile } from "../../../platform/config/file.ts";
import { enabledProviders } from "../../../platform/config/providers.ts";
import type { Catalogue, ProviderReport } from "../../../providers/catalogue/build-catalogue.ts";
import { configuredCatalogue } from "../../../providers/catalogue/configured-catalogue.ts";
import {
  describeModel,
  type ModelDescription,
} from "../../../providers/catalogue/describe-model.ts";
import type { Command, CommandContext } from "../command.ts";
import { readOperatorSettings } from "../operator-database.ts";
import { renderTable } from "../print.ts";
import { builtIn } from "./built-in-models.ts";
import { prices } from "./model-prices.ts";

const PRICE_DIGITS = 6;
const TOKENS_OF_A_PRICE = 1_000_000;

const list: Command = {
  noun: "models",
  verb: "list",
  summary: "Lists the models that the configured providers serve, with prices in USD.",
  options: {
    provider: { value: "NAME", meaning: "only models of this provider" },
    category: { value: "NAME", meaning: "only models of this category, such as chat" },
    "left-out": { meaning: "also list the models that are left out, with the reason" },
  },
  run: async ({ options }, context) => {
    const catalogue = await readCatalogue(context);
    const { provider } = options;
    const data = catalogue.models
      .filter((model) => provider === undefined || servesOf(model.endpoints, provider))
      .filter(({ category }) => (options.category ?? category) === category)
      .map(describeModel);
    const reports = catalogue.reports.filter(
      (report) => (provider ?? report.provider) === report.provider,
    );
    const text = [modelTable(data), reportLines(reports)];
    if (options["left-out"] !== undefined) text.push(leftOutTable(reports));
    return {
      data: { object: "list", data, providers: reports.map(reportData) },
      text: text.filter((part) => part !== "").join("\n\n"),
    };
  },
};

function readCatalogue({ environment, cwd, nowMs }: CommandContext): Promise<Catalogue> {
  const faults = new ConfigFaults();
  const file = readConfigFile(environment, cwd, faults);
  const providers = enabledProviders(environment, file, faults);
  faults.throwAny();
  const { dataDir } = readOperatorSettings(environment, cwd);
  return configuredCatalogue({ ...file, providers, dataDir }, nowMs());
}

function servesOf(endpoints: readonly { readonly provider: string }[], provider: string): boolean {
  return endpoints.some((endpoint) => endpoint.provider === provider);
}

function reportData({ provider, type, models, leftOut, reason }: ProviderReport) {
  return {
    provider,
    type,
    models,
    left_out: leftOut,
    ...(reason !== undefined && { reason }),
  };
}

function reportLines(reports: readonly ProviderReport[]): string {
  return reports
    .map(({ provider, models, leftOut, reason }) =>
      reason === undefined
        ? `${provider}: ${models} models, ${leftOut.length} left out.`
        : `${provider}: no models, ${reason}.`,
    )
    .join("\n");
}

function leftOutTable(reports: readonly ProviderReport[]): string {
  const rows = reports.flatMap(({ provider, leftOut }) =>
    leftOut.map(({ name, reason }) => [provider, name, reason]),
  );
  return renderTable(["PROVIDER", "LEFT OUT", "REASON"], rows, "No models are left out.");
}

function modelTable(models: readonly ModelDescription[]): string {
  const headings = ["ID", "PROVIDER", "CATEGORY", "CONTEXT", "INPUT/M", "OUTPUT/M", "STATE"];
  const rows = models.map((model) => [
    model.id,
    model.provider,
    model.category,
    String(model.context_length),
    perMillion(model.input_cost_per_token),
    perMillion(model.output_cost_per_token),
    model.is_active ? "active" : "inactive",
  ]);
  return renderTable(headings, rows, "No models.");
}

function perMillion(usdPerToken: number): string {
  return String(Number((usdPerToken * TOKENS_OF_A_PRICE).toFixed(PRICE_DIGITS)));
}

export const modelCommands: readonly Command[] = [list, builtIn, prices];
