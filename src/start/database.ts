import { resolve } from "node:path";
import type { DatabaseTarget } from "../../db/client.ts";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { migrate } from "../../db/migrate.ts";
import { refuse } from "../config/config-error.ts";
import type { GatewayConfig } from "../config.ts";

export interface StartedDatabase {
  readonly target: DatabaseTarget;
  readonly isEmbedded: boolean;
  /** To be called when a stop begins. */
  announceStop(): void;
  stop(): Promise<void>;
}

/** The configured database, or the embedded one in the data folder; its schema is brought up to date. */
export async function startDatabase(
  config: GatewayConfig,
  log: (message: string) => void,
): Promise<StartedDatabase> {
  const database = await openDatabase(config, log);
  try {
    await migrate(database.target);
  } catch (error) {
    await database.stop();
    throw unusable(config, error);
  }
  return database;
}

/** One line that names the setting, without its password. */
function unusable(config: GatewayConfig, cause: unknown): Error {
  const reason = cause instanceof Error ? cause.message : String(cause);
  const { databaseUrl } = config;
  if (databaseUrl === undefined)
    return new Error(`the embedded database cannot be used: ${reason}`);
  const { host, pathname } = URL.parse(databaseUrl) ?? { host: "", pathname: "" };
  return new Error(
    `DATABASE_URL: the database ${host}${pathname} cannot be used (${reason}); a Postgres of version 15 or later is needed`,
  );
}

async function openDatabase(
  config: GatewayConfig,
  log: (message: string) => void,
): Promise<StartedDatabase> {
  if (config.databaseUrl !== undefined) {
    return foreignDatabase(config.databaseUrl);
  }
  const { dataDir } = config;
  const embedded = await startEmbeddedPostgres({ dataDir, log }).catch((error) => {
    throw asDataFolderFault(dataDir, error);
  });
  return {
    target: { url: embedded.url },
    isEmbedded: true,
    announceStop: () => embedded.announceStop(),
    stop: () => embedded.stop(),
  };
}

/** One that is started and stopped elsewhere. */
export function foreignDatabase(url: string): StartedDatabase {
  return { target: { url }, isEmbedded: false, announceStop() {}, stop: async () => {} };
}

/** The failure of a call to the operating system about the data folder, by its setting; others as they are. */
export function asDataFolderFault(dataDir: string, error: unknown): unknown {
  const { code, path } = (error ?? {}) as { code?: unknown; path?: unknown };
  if (typeof code !== "string" || typeof path !== "string") return error;
  const [folder, named] = [resolve(dataDir), resolve(path)];
  if (!named.startsWith(folder) && !folder.startsWith(named)) return error;
  return refuse("DATA_DIR", dataDir, `a folder that can be made and written to (${code})`);
}
