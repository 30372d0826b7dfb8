import { join } from "node:path";
import type { Database } from "../../../db/client.ts";
import { type GatewayConfig, readConfig } from "../../config.ts";
import type { CommandContext } from "../command.ts";
import type { DatabaseSettings } from "../operator-database.ts";
import { readOperatorSettings } from "../operator-settings.ts";
import { checkDataFolder } from "./check-data-folder.ts";
import { checkDatabase } from "./check-database.ts";
import { checkFileFolder } from "./check-file-folder.ts";
import { checkFileStorage } from "./check-file-storage.ts";
import { checkMasterKey, checkSealedValues } from "./check-master-key.ts";
import { checkProviders } from "./check-providers.ts";
import { checkRedis } from "./check-redis.ts";
import { type Finding, ok, wrong } from "./finding.ts";

/** Looks at everything that the gateway needs to start and to serve. */
export async function examine(context: CommandContext): Promise<Finding[]> {
  const { environment, cwd, log } = context;
  let config: GatewayConfig;
  try {
    config = readConfig(environment, { cwd });
  } catch (error) {
    return [wrong("configuration", error), ...(await examineStorage(context))];
  }
  const [database, redis, files, providers] = await Promise.all([
    checkDatabase(config, log, (sql) => examineContents(sql, config)),
    checkRedis(config.redisUrl),
    checkFileStorage(config),
    checkProviders(config.providers, config.proxies),
  ]);
  return [
    ok("configuration", config.configFile ?? "environment alone"),
    ...config.warnings.map(warning),
    checkDataFolder(config.dataDir),
    checkMasterKey(config),
    ...database,
    ...redis,
    ...files,
    ...providers,
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

function warning(detail: string): Finding {
  return { name: "configuration", state: "warning", detail };
}
