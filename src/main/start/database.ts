import { resolve } from "node:path";
import {
  connectDatabase,
  type Database,
  type DatabaseTarget,
  retryDelaySeconds,
} from "../../../db/client.ts";
import {
  assertUsable,
  describeFailure,
  isDatabaseFailure,
  isTransientFailure,
} from "../../../db/connect-failure.ts";
import { startEmbeddedPostgres } from "../../../db/embedded.ts";
import { MIGRATION_SETTINGS, migrateSchema } from "../../../db/migrate.ts";
import { refuse } from "../../platform/config/config-error.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";

export interface StartedDatabase {
  readonly target: DatabaseTarget;
  readonly isEmbedded: boolean;
  /** Call it when a stop begins. */
  announceStop(): void;
  stop(): Promise<void>;
}

type Log = Pick<Telemetry["log"], "info" | "warn">;

/** Returns the configured database, or starts the embedded one in the data folder. */
export async function openDatabase(config: GatewayConfig, log: Log): Promise<StartedDatabase> {
  if (config.databaseUrl !== undefined) {
    return foreignDatabase(config.databaseUrl);
  }
  const { dataDir } = config;
  const embedded = await startEmbeddedPostgres({ dataDir, log: (text) => log.info(text) }).catch(
    (error) => {
      throw asDataFolderFault(dataDir, error);
    },
  );
  return {
    target: { url: embedded.url },
    isEmbedded: true,
    announceStop: () => embedded.announceStop(),
    stop: () => embedded.stop(),
  };
}

interface PrepareOptions {
  readonly config: GatewayConfig;
  readonly target: DatabaseTarget;
  readonly log: Log;
  /** Throws if the process received a stop signal. Called between attempts. */
  readonly assertNotStopped: () => void;
  /** Milliseconds for which an unreachable database is retried. */
  readonly retryForMs?: number;
}

/** Milliseconds within which a database that starts together with the gateway answers. */
const RETRY_FOR_MS = 60_000;
const RETRY_LOG_MS = 10_000;

/**
 * Connects and brings the schema up to date. Returns the connection, for the other queries of a start. Retries an
 * unreachable database for a minute. Throws an error of one line that names the failure.
 */
export async function prepareDatabase(options: PrepareOptions): Promise<Database> {
  const { config, target, log, assertNotStopped, retryForMs = RETRY_FOR_MS } = options;
  const untilMs = performance.now() + retryForMs;
  let lastLogMs = Number.NEGATIVE_INFINITY;
  for (let failures = 1; ; failures++) {
    try {
      return await openSession(target, log);
    } catch (error) {
      assertNotStopped();
      const nowMs = performance.now();
      if (!isTransientFailure(error) || nowMs >= untilMs) throw asUnusable(config, error);
      if (nowMs - lastLogMs >= RETRY_LOG_MS) {
        lastLogMs = nowMs;
        const leftSeconds = Math.ceil((untilMs - nowMs) / 1_000);
        log.warn(`${unusable(config, error)}; trying again for ${leftSeconds} s`);
      }
      await Bun.sleep(retryDelaySeconds(failures) * 1_000);
    }
  }
}

async function openSession(target: DatabaseTarget, log: Log): Promise<Database> {
  const open = (applicationName: string) =>
    connectDatabase(target, { poolSize: 1, applicationName, settings: MIGRATION_SETTINGS });
  const [sql, probe] = [open("gateway-start"), open("gateway-probe")];
  try {
    await assertUsable(sql, probe);
    await migrateSchema(sql, (message) => log.info(message));
    return sql;
  } catch (error) {
    void sql.end({ timeout: 0 });
    throw error;
  } finally {
    void probe.end({ timeout: 0 });
  }
}

/** Returns a failure of the database as one line that names the setting, and any other failure unchanged. */
export function asUnusable(config: GatewayConfig, error: unknown): unknown {
  return isDatabaseFailure(error) ? new Error(unusable(config, error), { cause: error }) : error;
}

function unusable({ databaseUrl }: GatewayConfig, error: unknown): string {
  const reason = describeFailure(error);
  if (databaseUrl === undefined) return `the embedded database cannot be used: ${reason}`;
  // User, password and parameters are left out.
  const { host, pathname } = URL.parse(databaseUrl) ?? { host: "", pathname: "" };
  return `DATABASE_URL: the database ${host}${pathname} cannot be used: ${reason}`;
}

/** Returns a database that another program starts and stops. */
export function foreignDatabase(url: string): StartedDatabase {
  return { target: { url }, isEmbedded: false, announceStop() {}, stop: async () => {} };
}

/** Returns a failure of the operating system on the data folder as an error of DATA_DIR, and any other unchanged. */
export function asDataFolderFault(dataDir: string, error: unknown): unknown {
  const { code, path } = (error ?? {}) as { code?: unknown; path?: unknown };
  if (typeof code !== "string" || typeof path !== "string") return error;
  const [folder, named] = [resolve(dataDir), resolve(path)];
  if (!named.startsWith(folder) && !folder.startsWith(named)) return error;
  return refuse("DATA_DIR", dataDir, `a folder that can be created and written to (${code})`);
}
