import type { Command } from "../command.ts";
import { examine } from "../doctor/examine.ts";
import type { Finding } from "../doctor/finding.ts";
import { renderFields } from "../print/table.ts";

const run: Command = {
  noun: "doctor",
  summary: "Says what is configured, what can be reached, and what is wrong.",
  options: {
    live: { meaning: "also ask each provider whether it takes its key and knows the models" },
  },
  run: async ({ options }, context) => {
    const checks = await examine(context, options.live !== undefined);
    const isFailure = checks.some(({ state }) => state === "wrong");
    return { data: { ok: !isFailure, checks }, text: findingsText(checks), isFailure };
  },
};

function findingsText(findings: readonly Finding[]): string {
  const wrongs = findings.filter(({ state }) => state === "wrong").length;
  const verdict =
    wrongs === 0
      ? "Nothing is wrong."
      : wrongs === 1
        ? "1 thing is wrong."
        : `${wrongs} things are wrong.`;
  const lines = findings.map(({ state, name, detail }) => [state, name, detail] as const);
  return `${renderFields(lines)}${verdict}\n`;
}

export const doctorCommands: readonly Command[] = [run];
