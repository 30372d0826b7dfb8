import type { Database } from "../../../../db/client.ts";
import { readConfiguration } from "../../../../db/queries/configuration.ts";
import { changeEntries } from "../../../accounts/configuration/stored-configuration.ts";
import { LiveConfiguration } from "../../../inference/models/live-configuration.ts";
import { systemClock } from "../../../lib/clock.ts";
import { ConfigFaults } from "../../../platform/config/config-error.ts";
import { readConfigFile } from "../../../platform/config/file.ts";
import { readCheckedConfig } from "../../../platform/config.ts";
import { checkFileModels } from "../../../providers/catalogue/configured-catalogue.ts";
import { builtInModels } from "../../../providers/catalogue/provider-models.ts";
import { createHttpClient } from "../../../providers/transport/http-client.ts";
import { openMasterKeys } from "../../start/master-key.ts";
import type { CommandContext } from "../command.ts";
import { withDatabase } from "../operator-database.ts";
import {
  type ConfigurationDifference,
  type ConfigurationEntries,
  type ConfigurationSources,
  changesTo,
} from "./configuration-file.ts";

/** The configuration that a gateway with the same environment has in force, and the database that stores it. */
export interface OpenConfiguration {
  readonly sources: ConfigurationSources;
  readonly sql: Database;
  readonly live: LiveConfiguration;
}

/** Runs work with the configuration that a gateway with this environment has in force. */
export function withConfiguration<Result>(
  context: CommandContext,
  work: (configuration: OpenConfiguration) => Promise<Result>,
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
    return work({ sources: { environment, file, providers, stored, keyring }, sql, live });
  });
}

/**
 * Stores the entries in one transaction: all of them, or none. Returns the differences that this makes. Throws
 * GatewayError if the configuration would have faults.
 *
 * @param isDryRun checks the changes without making them
 * @param keepsOthers keeps stored entries that `target` lacks; otherwise they are deleted
 */
export async function applyEntries(
  target: ConfigurationEntries,
  { sources, sql, live }: OpenConfiguration,
  { isDryRun = false, keepsOthers = false } = {},
): Promise<readonly ConfigurationDifference[]> {
  let differences: readonly ConfigurationDifference[] = [];
  await changeEntries(
    { sql, clock: systemClock, keyring: sources.keyring, live },
    (stored) => {
      const found = changesTo(target, { ...sources, stored }, { keepsOthers });
      differences = found.differences;
      return found.changes;
    },
    isDryRun,
  );
  return differences;
}

/** Returns one line for each difference. */
export function differencesText(differences: readonly ConfigurationDifference[]): string {
  if (differences.length === 0) return "No differences.\n";
  return differences
    .map(({ kind, id, act, members }) => {
      const list = act === "change" ? `: ${members.join(", ")}` : "";
      return `${act} ${kind} ${id}${list}\n`;
    })
    .join("");
}
