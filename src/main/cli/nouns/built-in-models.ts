import {
  isSelfHosted,
  PROVIDER_TYPES,
  requestsModelList,
} from "../../../platform/config/provider-types.ts";
import { builtInModels, type LeftOut } from "../../../providers/catalogue/provider-models.ts";
import { sandboxModels } from "../../../providers/catalogue/sandbox-models.ts";
import type { Command } from "../command.ts";
import { renderTable } from "../print.ts";

const SHOWN_EXAMPLES = 3;
const WITHDRAWN = "its provider has withdrawn it";

/** The built-in models of one provider type. */
interface TypeReport {
  readonly type: string;
  /** Numbers of models with prices and limits, by category. */
  readonly models: Readonly<Record<string, number>>;
  readonly total: number;
  readonly leftOut: readonly LeftOut[];
  /** Source of further models, or the reason why none exist. */
  readonly besides: string;
}

/** Covers every provider type, whatever the configuration. On one day the result is equal on every machine. */
export const builtIn: Command = {
  noun: "models",
  verb: "built-in",
  summary: "Counts the models with prices of each provider type, and the models that are left out.",
  options: {
    provider: { value: "TYPE", meaning: "only this provider type" },
    "left-out": { meaning: "also list the reasons, each with the number of names left out" },
  },
  run: async ({ options }, { nowMs }) => {
    const types = Object.keys(PROVIDER_TYPES).filter((type) => (options.provider ?? type) === type);
    const reports = await Promise.all(types.map((type) => reportOf(type, new Date(nowMs()))));
    const text = [countTable(reports)];
    if (options["left-out"] !== undefined) text.push(reasonTable(reports));
    return { data: { object: "list", data: reports.map(reportData) }, text: text.join("\n") };
  },
};

async function reportOf(type: string, now: Date): Promise<TypeReport> {
  const listed = await builtInModels(type, now);
  const models = type === "sandbox" ? sandboxModels() : listed.models;
  const active = models.filter(({ isActive }) => isActive);
  const counts: Record<string, number> = {};
  for (const { category } of active) counts[category] = (counts[category] ?? 0) + 1;
  const withdrawn = models
    .filter(({ isActive }) => !isActive)
    .map(({ endpoints }) => ({ name: endpoints[0]!.model, reason: WITHDRAWN }));
  return {
    type,
    models: counts,
    total: active.length,
    leftOut: [...listed.leftOut, ...withdrawn],
    besides: besides(type),
  };
}

function besides(type: string): string {
  const { noBuiltInModelsReason } = PROVIDER_TYPES[type]!;
  if (noBuiltInModelsReason !== undefined) return noBuiltInModelsReason;
  if (!requestsModelList(type)) return "nothing";
  return isSelfHosted(type)
    ? "the models that the server lists, free of charge"
    : "its own list of models";
}

function reportData({ leftOut, ...report }: TypeReport) {
  return { ...report, left_out: leftOut };
}

function countTable(reports: readonly TypeReport[]): string {
  const rows = reports.map(({ type, total, models, leftOut, besides: more }) => [
    type,
    String(total),
    Object.entries(models)
      .toSorted(([, one], [, other]) => other - one)
      .map(([category, count]) => `${count} ${category}`)
      .join(", "),
    String(leftOut.length),
    more,
  ]);
  const headings = ["TYPE", "MODELS", "BY CATEGORY", "LEFT OUT", "OTHER MODELS"];
  return renderTable(headings, rows, "No such provider type.");
}

function reasonTable(reports: readonly TypeReport[]): string {
  const rows = reports.flatMap(({ type, leftOut }) => {
    const byReason = Map.groupBy(leftOut, ({ reason }) => reason);
    return [...byReason]
      .toSorted(([, one], [, other]) => other.length - one.length)
      .map(([reason, left]) => [type, String(left.length), reason, examplesOf(left)]);
  });
  const headings = ["TYPE", "LEFT OUT", "REASON", "EXAMPLES"];
  return renderTable(headings, rows, "No models are left out.");
}

function examplesOf(left: readonly LeftOut[]): string {
  const names = left.slice(0, SHOWN_EXAMPLES).map(({ name }) => name);
  return left.length > names.length ? `${names.join(", ")}, …` : names.join(", ");
}
