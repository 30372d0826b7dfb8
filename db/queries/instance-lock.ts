import type { Database } from "../client.ts";

/**
 * Held for life, on a connection of its own: alone by the gateway that is the only one on a database,
 * shared by each of several instances. Death gives it up, a pause keeps it.
 */
export const GATEWAY_LOCK = 7_203_114_502;

export type DeploymentMode = "single-node" | "clustered";

/** True where this session now holds the lock. */
export async function takeGatewayLock(
  sql: Database,
  deploymentMode: DeploymentMode,
): Promise<boolean> {
  const [row] =
    deploymentMode === "single-node"
      ? await sql<{ taken: boolean }[]>`SELECT pg_try_advisory_lock(${GATEWAY_LOCK}) AS taken`
      : await sql<
          { taken: boolean }[]
        >`SELECT pg_try_advisory_lock_shared(${GATEWAY_LOCK}) AS taken`;
  return row!.taken;
}

/**
 * True where this session holds the lock, taking it where it was lost: a restart of the database ends the
 * session that held it, and the driver then goes on with another one. Where the server has not noticed
 * yet that the earlier session's client is gone, that session is ended, and this throws: the next look
 * finds the lock. Sessions of this name are those of this gateway.
 */
export async function keepGatewayLock(
  sql: Database,
  deploymentMode: DeploymentMode,
): Promise<boolean> {
  const [row] = await sql<{ is_held: boolean }[]>`
    SELECT EXISTS (
      SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
        AND (classid::bigint << 32) + objid::bigint = ${GATEWAY_LOCK}::bigint
    ) AS is_held`;
  if (row!.is_held || (await takeGatewayLock(sql, deploymentMode))) return true;
  const ended = await sql`SELECT pg_terminate_backend(l.pid)
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()
      AND (l.classid::bigint << 32) + l.objid::bigint = ${GATEWAY_LOCK}::bigint
      AND a.application_name = current_setting('application_name') AND a.pid <> pg_backend_pid()`;
  if (ended.length === 0) return false;
  throw new Error("an earlier session of this gateway held its lock and is being ended");
}
