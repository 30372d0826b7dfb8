import {
  asksForModels,
  isSelfHosted,
  PROVIDER_TYPES,
} from "../../../platform/config/provider-types.ts";
import { builtInModels, type LeftOut } from "../../../providers/catalogue/provider-models.ts";
import { sandboxModels } from "../../../providers/catalogue/sandbox-models.ts";
import type { Command } from "../command.ts";
import { renderTable } from "../print.ts";

const SHOWN_EXAMPLES = 3;
const WITHDRAWN = "its provider has withdrawn it";

/** What is built in of one provider type. */
interface TypeReport {
  readonly type: string;
  /** With prices and limits, by category. */
  readonly models: Readonly<Record<string, number>>;
  readonly total: number;
  readonly leftOut: readonly LeftOut[];
  /** Where further models come from, or why there are none. */
  readonly besides: string;
}

/** Of every provider type, whatever is configured: the same on every machine, on one day. */
export const builtIn: Command = {
  noun: "models",
  verb: "built-in",
  summary: "Counts the models with prices that each type of provider brings, and what is left out.",
  options: {
    provider: { value: "TYPE", meaning: "only those of this type of provider" },
    "left-out": { meaning: "also how many names are left out for which reason" },
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
  if (!asksForModels(type)) return "nothing";
  return isSelfHosted(type) ? "what the server lists, free of charge" : "its own list of models";
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
  const headings = ["TYPE", "MODELS", "BY CATEGORY", "LEFT OUT", "BESIDES"];
  return renderTable(headings, rows, "There is no such type of provider.");
}

function reasonTable(reports: readonly TypeReport[]): string {
  const rows = reports.flatMap(({ type, leftOut }) => {
    const byReason = Map.groupBy(leftOut, ({ reason }) => reason);
    return [...byReason]
      .toSorted(([, one], [, other]) => other.length - one.length)
      .map(([reason, left]) => [type, String(left.length), reason, examplesOf(left)]);
  });
  const headings = ["TYPE", "LEFT OUT", "BECAUSE", "SUCH AS"];
  return renderTable(headings, rows, "Nothing is left out.");
}

function examplesOf(left: readonly LeftOut[]): string {
  const names = left.slice(0, SHOWN_EXAMPLES).map(({ name }) => name);
  return left.length > names.length ? `${names.join(", ")}, …` : names.join(", ");
}
