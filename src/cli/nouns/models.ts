import { ConfigFaults } from "../../config/config-error.ts";
import { readConfigFile } from "../../config/file.ts";
import { enabledProviders } from "../../config/providers.ts";
import { buildCatalogue } from "../../providers/catalogue/build-catalogue.ts";
import { describeModel, type ModelDescription } from "../../providers/catalogue/describe-model.ts";
import type { Command } from "../command.ts";
import { renderTable } from "../print/table.ts";

const PRICE_DIGITS = 6;
const TOKENS_OF_A_PRICE = 1_000_000;

const list: Command = {
  noun: "models",
  verb: "list",
  summary: "Lists the models that the configured providers serve, with prices in USD.",
  options: {
    provider: { value: "NAME", meaning: "only those of this provider" },
    category: { value: "NAME", meaning: "only those of this category, such as chat" },
  },
  run: async ({ options }, context) => {
    const file = readConfigFile(context.environment, context.cwd);
    const faults = new ConfigFaults();
    const { providers } = enabledProviders(context.environment, file, faults);
    faults.throwAny();
    const { models, sandbox } = file;
    const catalogue = await buildCatalogue({
      providers,
      models,
      sandbox,
      now: new Date(context.nowMs()),
    });
    const data = catalogue.models
      .map(describeModel)
      .filter(({ provider }) => (options.provider ?? provider) === provider)
      .filter(({ category }) => (options.category ?? category) === category);
    return { data: { object: "list", data }, text: modelTable(data) };
  },
};

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

export const modelCommands: readonly Command[] = [list];
