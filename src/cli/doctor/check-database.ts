import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Database } from "../../../db/client.ts";
import { findPostgresBinaries } from "../../../db/embedded/folders.ts";
import { readMigrationState } from "../../../db/migrate.ts";
import { lastHeartbeat, readServerVersion } from "../../../db/queries/database-server.ts";
import { maskUrl } from "../../config/config-error.ts";
import { type DatabaseSettings, withServer } from "../operator-database.ts";
import { type Finding, ok, warning, wrong } from "./finding.ts";

const NAME = "database";
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
      return [ok(NAME, `embedded Postgres ${majorVersion}, made at the first start`)];
    }
    return await withServer(settings, log, (sql) => look(sql, address, lookFurther));
  } catch (error) {
    return [wrong(NAME, `${address}: ${(error as Error).message}`)];
  }
}

async function look(sql: Database, address: string, lookFurther: FurtherLook): Promise<Finding[]> {
  const version = await readServerVersion(sql);
  const found = `${address}, Postgres ${version.text}`;
  if (version.major < OLDEST_MAJOR_VERSION) {
    return [wrong(NAME, `${found}, but must be Postgres ${OLDEST_MAJOR_VERSION} or newer`)];
  }
  return [ok(NAME, found), ...(await lookAtSchema(sql, lookFurther))];
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
