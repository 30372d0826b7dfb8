import { join } from "node:path";
import type { Database } from "../../../db/client.ts";
import { ConfigError } from "../../config/config-error.ts";
import { type GatewayConfig, readConfig } from "../../config.ts";
import { createHttpClient } from "../../providers/transport/http-client.ts";
import type { CommandContext } from "../command.ts";
import type { DatabaseSettings } from "../operator-database.ts";
import { readOperatorSettings } from "../operator-settings.ts";
import { checkCatalogue } from "./check-catalogue.ts";
import { checkDataFolder } from "./check-data-folder.ts";
import { checkDatabase, GATEWAY_RUNS } from "./check-database.ts";
import { checkFileFolder } from "./check-file-folder.ts";
import { checkFileStorage } from "./check-file-storage.ts";
import { checkLive } from "./check-live.ts";
import { checkMasterKey, checkSealedValues } from "./check-master-key.ts";
import { checkPort } from "./check-port.ts";
import { checkProviders } from "./check-providers.ts";
import { checkRedis } from "./check-redis.ts";
import { type Finding, ok, warning, wrong } from "./finding.ts";

/**
 * Looks at everything that the gateway needs to start and to serve; with `isLive` it also asks the providers
 * whether they take their keys.
 */
export async function examine(context: CommandContext, isLive: boolean): Promise<Finding[]> {
  const { environment, cwd, log } = context;
  let config: GatewayConfig;
  try {
    config = readConfig(environment, { cwd });
  } catch (error) {
    const faults = error instanceof ConfigError ? error.faults : [error];
    return [
      ...faults.map((fault) => wrong("configuration", fault)),
      ...(await examineStorage(context)),
    ];
  }
  const client = createHttpClient({ proxies: config.proxies });
  const [database, redis, files, providers] = await Promise.all([
    checkDatabase(config, log, (sql) => examineContents(sql, config)),
    checkRedis(config.redisUrl),
    checkFileStorage(config),
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
