import { join } from "node:path";
import type { Database } from "../../../../db/client.ts";
import { ConfigError } from "../../../platform/config/config-error.ts";
import { type GatewayConfig, readCheckedConfig } from "../../../platform/config.ts";
import { checkFileModels } from "../../../providers/catalogue/configured-catalogue.ts";
import { createHttpClient } from "../../../providers/transport/http-client.ts";
import type { Command, CommandContext } from "../command.ts";
import { checkPayments } from "../doctor/check-payments.ts";
import { checkCatalogue, checkLive, checkProviders } from "../doctor/check-providers.ts";
import { checkSearch } from "../doctor/check-search.ts";
import {
  checkDatabase,
  checkDataFolder,
  checkFileFolder,
  checkFileStorage,
  checkMasterKey,
  checkPort,
  checkRedis,
  checkSealedValues,
  type Finding,
  GATEWAY_RUNS,
  ok,
  warning,
  wrong,
} from "../doctor/check-services.ts";
import { type DatabaseSettings, readOperatorSettings } from "../operator-database.ts";
import { renderFields } from "../print.ts";

const run: Command = {
  noun: "doctor",
  summary: "Says what is configured, what can be reached, and what is wrong.",
  options: {
    live: {
      meaning:
        "also ask each provider whether it takes its key and knows the models, and search the web once",
    },
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

/**
 * Looks at everything that the gateway needs to start and to serve; with `isLive` it also asks the providers
 * whether they take their keys.
 */
async function examine(context: CommandContext, isLive: boolean): Promise<Finding[]> {
  const { environment, cwd, log } = context;
  let config: GatewayConfig;
  try {
    config = await readCheckedConfig(environment, checkFileModels, { cwd });
  } catch (error) {
    const faults = error instanceof ConfigError ? error.faults : [error];
    return [
      ...faults.map((fault) => wrong("configuration", fault)),
      ...(await examineStorage(context)),
    ];
  }
  const client = createHttpClient({ proxies: config.proxies });
  const [database, redis, files, search, payments, providers] = await Promise.all([
    checkDatabase(config, log, (sql) => examineContents(sql, config)),
    checkRedis(config.redisUrl),
    checkFileStorage(config),
    checkSearch(config.search, client, isLive),
    checkPayments(config, isLive),
    checkProviders(config.providers, client),
  ]);
  const catalogue = await checkCatalogue(config, context.nowMs());
  return [
    ok("configuration", config.configFile ?? "environment alone"),
    ...config.warnings.map((detail) => warning("configuration", detail)),
    await checkPort(
      config,
      database.some(({ detail }) => detail === GATEWAY_RUNS),
    ),
    checkDataFolder(config.dataDir),
    checkMasterKey(config),
    ...database,
    ...redis,
    ...files,
    ...search,
    payments,
    ...(config.moderationModel === undefined ? [] : [ok("moderation", config.moderationModel)]),
    ...providers,
    ...catalogue.findings,
    ...(isLive
      ? await checkLive(
          catalogue.targets.filter(({ provider }) => provider.baseUrl),
          client,
        )
      : []),
  ];
}

/** What the database holds, against what is configured. */
async function examineContents(sql: Database, config: GatewayConfig): Promise<Finding[]> {
  const sealed = await checkSealedValues(sql, config);
  if (config.s3 !== undefined) return [sealed];
  return [sealed, await checkFileFolder(sql, join(config.dataDir, "files"))];
}

/** What can be looked at although the configuration as a whole cannot be read. */
async function examineStorage({ environment, cwd, log }: CommandContext): Promise<Finding[]> {
  let settings: DatabaseSettings;
  try {
    settings = readOperatorSettings(environment, cwd);
  } catch {
    return [];
  }
  return [checkDataFolder(settings.dataDir), ...(await checkDatabase(settings, log))];
}
