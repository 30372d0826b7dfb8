import { existsSync, mkdtempSync, rmdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Database } from "../../../db/client.ts";
import { findPostgresBinaries } from "../../../db/embedded/folders.ts";
import { readMigrationState } from "../../../db/migrate.ts";
import { lastHeartbeat, readServerVersion } from "../../../db/queries/database-server.ts";
import { maskUrl } from "../../config/config-error.ts";
import type { GatewayConfig } from "../../config.ts";
import { examineKeyring, isSealed } from "../../master-key/establish.ts";
import { knownMasterKeys, MasterKeyFiles } from "../../start/master-key.ts";
import { type DatabaseSettings, withServer } from "../operator-database.ts";
import { type Finding, ok, warning, wrong } from "./finding.ts";

const DATABASE_CHECK = "database";
const OLDEST_MAJOR_VERSION = 15;

/** What else is looked at in a database of the current schema. */
type FurtherLook = (sql: Database) => Promise<readonly Finding[]>;

/**
 * Whether the database answers, is new enough, and has the current schema; changes nothing in it. An
 * embedded one that does not run is started for the time being, but never made.
 * @param filesFolder where stored files would lie; undefined where they lie elsewhere
 */
export async function checkDatabase(
  settings: DatabaseSettings,
  log: (message: string) => void,
  lookFurther: FurtherLook = async () => [],
): Promise<Finding[]> {
  const { databaseUrl, dataDir } = settings;
  const address = databaseUrl === undefined ? "embedded" : maskUrl(databaseUrl);
  try {
    if (databaseUrl === undefined && !existsSync(join(dataDir, "postgres", "PG_VERSION"))) {
      const { majorVersion } = findPostgresBinaries();
      return [ok(DATABASE_CHECK, `embedded Postgres ${majorVersion}, made at the first start`)];
    }
    return await withServer(settings, log, (sql) => look(sql, address, lookFurther));
  } catch (error) {
    return [wrong(DATABASE_CHECK, `${address}: ${(error as Error).message}`)];
  }
}

async function look(sql: Database, address: string, lookFurther: FurtherLook): Promise<Finding[]> {
  const version = await readServerVersion(sql);
  const found = `${address}, Postgres ${version.text}`;
  if (version.major < OLDEST_MAJOR_VERSION) {
    return [
      wrong(DATABASE_CHECK, `${found}, but must be Postgres ${OLDEST_MAJOR_VERSION} or newer`),
    ];
  }
  return [ok(DATABASE_CHECK, found), ...(await lookAtSchema(sql, lookFurther))];
}

async function lookAtSchema(sql: Database, lookFurther: FurtherLook): Promise<Finding[]> {
  const { pending, isNewer } = await readMigrationState(sql);
  if (pending.length > 0) {
    const detail = `${pending.length} to be applied (${pending.join(", ")}): bun run cli migrate, or start the gateway`;
    return [wrong("migrations", detail)];
  }
  const migrations: Finding = isNewer
    ? { name: "migrations", state: "warning", detail: "of a newer version of the gateway" }
    : ok("migrations", "up to date");
  return [migrations, await lookForGateway(sql), ...(await lookFurther(sql))];
}

/** Longer than two heartbeats of a gateway, which come every 500 ms. */
const LISTENING_MS = 1_500;
const POLL_MS = 100;

export const GATEWAY_RUNS = "one runs on this database";

/**
 * A gateway that was killed leaves a row that calls it alive until another one declares it dead, and whose
 * last heartbeat may be a moment old: only a heartbeat that comes while we listen proves that it runs.
 */
async function lookForGateway(sql: Database): Promise<Finding> {
  const name = "gateway";
  const first = await lastHeartbeat(sql);
  if (first === undefined) return ok(name, "none runs");
  const deadlineMs = performance.now() + LISTENING_MS;
  while (performance.now() < deadlineMs) {
    await Bun.sleep(POLL_MS);
    const next = await lastHeartbeat(sql);
    if (next !== undefined && next.at !== first.at) return ok(name, GATEWAY_RUNS);
  }
  const seconds = Math.round(first.secondsAgo);
  return warning(
    name,
    `none runs; the last one ended without a stop, ${seconds} s ago, and the next start settles what it left`,
  );
}

const FOLDER_CHECK = "data folder";

/** Whether the data folder can be written to, or made. Leaves nothing behind. */
export function checkDataFolder(dataDir: string): Finding {
  try {
    const isThere = existsSync(dataDir);
    if (isThere && !statSync(dataDir).isDirectory())
      return wrong(FOLDER_CHECK, `${dataDir} is no folder`);
    const folder = isThere ? dataDir : nearestFolder(dataDir);
    rmdirSync(mkdtempSync(join(folder, ".doctor-")));
    return ok(
      FOLDER_CHECK,
      isThere ? `${dataDir} can be written to` : `${dataDir}, made at the first start`,
    );
  } catch (error) {
    return wrong(
      FOLDER_CHECK,
      `${dataDir} cannot be written to (${(error as { code?: string }).code})`,
    );
  }
}

function nearestFolder(path: string): string {
  const parent = dirname(path);
  return existsSync(parent) || parent === path ? parent : nearestFolder(parent);
}

const MASTER_KEY_CHECK = "master key";
const SEALED_NAME = "sealed values";

/** Whether there is a key to encrypt with, kept from others. Makes none. */
export function checkMasterKey(config: GatewayConfig): Finding {
  if (config.masterKey !== undefined) return ok(MASTER_KEY_CHECK, "from GATEWAY_MASTER_KEY");
  const { path, nextPath } = new MasterKeyFiles(config.dataDir);
  try {
    if (knownMasterKeys(config) === undefined)
      return ok(MASTER_KEY_CHECK, "made at the first start");
    const open = [path, nextPath].find((one) => existsSync(one) && !isPrivate(one));
    if (open === undefined) return ok(MASTER_KEY_CHECK, path);
    return {
      name: MASTER_KEY_CHECK,
      state: "warning",
      detail: `${open} can be read by others: chmod 600`,
    };
  } catch (error) {
    return wrong(MASTER_KEY_CHECK, error);
  }
}

/** Whether the key is the one that the database is sealed with. Writes nothing down. */
export async function checkSealedValues(sql: Database, config: GatewayConfig): Promise<Finding> {
  try {
    const keys = knownMasterKeys(config);
    if (keys === undefined) {
      if (!(await isSealed(sql))) return ok(SEALED_NAME, "none yet");
      const { path } = new MasterKeyFiles(config.dataDir);
      return wrong(SEALED_NAME, `${path} is missing, which opens them: restore it from a backup`);
    }
    const opened = await examineKeyring(sql, keys);
    if (opened === undefined) return ok(SEALED_NAME, "none yet");
    if (!opened.isBeingReplaced) return ok(SEALED_NAME, "the master key opens them");
    const detail = "the master key is being replaced: bun run cli master-key rotate";
    return { name: SEALED_NAME, state: "warning", detail };
  } catch (error) {
    return wrong(SEALED_NAME, error);
  }
}

function isPrivate(path: string): boolean {
  return process.platform === "win32" || (statSync(path).mode & 0o077) === 0;
}
