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
  summary: "Checks the configuration, the services it names, and the data folder.",
  options: {
    live: {
      meaning: "also check the key and the models at each provider, and search the web once",
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
    wrongs === 0 ? "No faults found." : wrongs === 1 ? "1 fault found." : `${wrongs} faults found.`;
  const lines = findings.map(({ state, name, detail }) => [state, name, detail] as const);
  return `${renderFields(lines)}${verdict}\n`;
}

export const doctorCommands: readonly Command[] = [run];

/** Checks everything that the gateway needs to start and to serve. With `isLive`, checks the keys at their providers too. */
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
    ok("configuration", config.configFile ?? "environment variables only"),
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

/** Checks the contents of the database against the configuration. */
async function examineContents(sql: Database, config: GatewayConfig): Promise<Finding[]> {
  const sealed = await checkSealedValues(sql, config);
  if (config.s3 !== undefined) return [sealed];
  return [sealed, await checkFileFolder(sql, join(config.dataDir, "files"))];
}

/** Runs the checks that work although the configuration as a whole is invalid. */
async function examineStorage({ environment, cwd, log }: CommandContext): Promise<Finding[]> {
  let settings: DatabaseSettings;
  try {
    settings = readOperatorSettings(environment, cwd);
  } catch {
    return [];
  }
  return [checkDataFolder(settings.dataDir), ...(await checkDatabase(settings, log))];
}
