import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { Database } from "../../../../db/client.ts";
import { readConfiguration } from "../../../../db/queries/configuration.ts";
import { changeEntries } from "../../../accounts/configuration/stored-configuration.ts";
import { LiveConfiguration } from "../../../inference/models/live-configuration.ts";
import { systemClock } from "../../../lib/clock.ts";
import { ConfigFaults } from "../../../platform/config/config-error.ts";
import { parseConfigText, readConfigFile } from "../../../platform/config/file.ts";
import { readCheckedConfig } from "../../../platform/config.ts";
import { checkFileModels } from "../../../providers/catalogue/configured-catalogue.ts";
import { builtInModels } from "../../../providers/catalogue/provider-models.ts";
import { createHttpClient } from "../../../providers/transport/http-client.ts";
import { openMasterKeys } from "../../start/master-key.ts";
import {
  type ConfigurationDifference,
  type ConfigurationSources,
  changesTo,
  exportConfiguration,
  readEntries,
} from "../actions/configuration-file.ts";
import { type Command, type CommandContext, UsageError } from "../command.ts";
import { withDatabase } from "../operator-database.ts";

const exportCommand: Command = {
  noun: "config",
  verb: "export",
  summary: "Prints the configuration in force as a gateway.config.json, with sealed secrets.",
  options: {},
  run: (_, context) =>
    withSources(context, async (sources) => {
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
    withSources(context, async (sources) => {
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
    withSources(context, async (sources, sql, live) => {
      const isDryRun = options["dry-run"] !== undefined;
      const target = readTarget(positional, context, sources);
      let differences: readonly ConfigurationDifference[] = [];
      await changeEntries(
        { sql, clock: systemClock, keyring: sources.keyring, live },
        (stored) => {
          const found = changesTo(target, { ...sources, stored });
          differences = found.differences;
          return found.changes;
        },
        isDryRun,
      );
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

function differencesText(differences: readonly ConfigurationDifference[]): string {
  if (differences.length === 0) return "No differences.\n";
  return differences
    .map(({ kind, id, act, members }) => {
      const list = act === "change" ? `: ${members.join(", ")}` : "";
      return `${act} ${kind} ${id}${list}\n`;
    })
    .join("");
}

/** Runs work with the configuration that a gateway with this environment has in force. */
function withSources<Result>(
  context: CommandContext,
  work: (sources: ConfigurationSources, sql: Database, live: LiveConfiguration) => Promise<Result>,
): Promise<Result> {
  const { environment, cwd, log } = context;
  return withDatabase(context, async (sql) => {
    const config = await readCheckedConfig(environment, checkFileModels, { cwd });
    const { keyring } = await openMasterKeys(config, sql);
    const live = new LiveConfiguration({
      ...{ base: config, background: sql, keyring, clock: systemClock },
      connectTimeoutMs: config.upstreamTimeouts.connectMs,
      shared: {
        clock: systemClock,
        httpClient: createHttpClient({ proxies: config.proxies }),
        workThread: { call: () => Promise.reject(new Error("the command line sends no request")) },
        providerFactories: { sandbox: () => ({}) as never },
      },
      builtIn: (typeName) => builtInModels(typeName, new Date()),
      read: (query) => query.run(sql),
      onReport() {},
      onError: (error) => log(String(error)),
    });
    const file = readConfigFile(environment, cwd, new ConfigFaults());
    const { providers } = config;
    const stored = await readConfiguration(sql);
    return work({ environment, file, providers, stored, keyring }, sql, live);
  });
}
