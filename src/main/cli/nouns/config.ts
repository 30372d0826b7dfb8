import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { parseConfigText } from "../../../platform/config/file.ts";
import {
  applyEntries,
  differencesText,
  withConfiguration,
} from "../actions/apply-configuration.ts";
import {
  type ConfigurationSources,
  changesTo,
  exportConfiguration,
  readEntries,
} from "../actions/configuration-file.ts";
import { type Command, type CommandContext, UsageError } from "../command.ts";

const exportCommand: Command = {
  noun: "config",
  verb: "export",
  summary: "Prints the configuration in force as a gateway.config.json, with sealed secrets.",
  options: {},
  run: (_, context) =>
    withConfiguration(context, async ({ sources }) => {
      const config = exportConfiguration(sources);
      return { data: config, text: `${JSON.stringify(config, null, 2)}\n` };
    }),
};

const diff: Command = {
  noun: "config",
  verb: "diff",
  summary: "Compares a file with the configuration in force. Exit code 1 if they differ.",
  options: {},
  positional: "FILE",
  isPositionalFile: true,
  run: ({ positional }, context) =>
    withConfiguration(context, async ({ sources }) => {
      const { differences } = changesTo(readTarget(positional, context, sources), sources);
      const isFailure = differences.length > 0;
      return { data: { differences }, text: differencesText(differences), isFailure };
    }),
};

const apply: Command = {
  noun: "config",
  verb: "apply",
  summary: "Makes the entries of a file the stored configuration: all of them, or none.",
  options: { "dry-run": { meaning: "check the changes and print them, without making them" } },
  positional: "FILE",
  isPositionalFile: true,
  run: ({ positional, options }, context) =>
    withConfiguration(context, async (configuration) => {
      const isDryRun = options["dry-run"] !== undefined;
      const target = readTarget(positional, context, configuration.sources);
      const differences = await applyEntries(target, configuration, { isDryRun });
      const end = isDryRun ? "Nothing was changed.\n" : "";
      return {
        data: { applied: !isDryRun, differences },
        text: `${differencesText(differences)}${end}`,
      };
    }),
};

export const configCommands: readonly Command[] = [exportCommand, diff, apply];

function readTarget(
  path: string | undefined,
  { cwd }: CommandContext,
  { keyring }: ConfigurationSources,
) {
  if (path === undefined) throw new UsageError("the command needs a file");
  let text: string;
  try {
    text = readFileSync(resolve(cwd, path), "utf8");
  } catch {
    throw new UsageError(`${path} cannot be read`);
  }
  return readEntries(path, parseConfigText(path, text), keyring);
}
