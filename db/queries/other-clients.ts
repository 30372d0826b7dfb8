import type { Database } from "../client.ts";

/** Any number that no other user of the database takes for an advisory lock. */
const GUEST_LOCK = 7_203_114_509;

/**
 * Marks this connection as one that uses a server which another command may own. False once the owner
 * has begun to end the server: no work may begin on it any more.
 */
export async function joinAsGuest(sql: Database): Promise<boolean> {
  const [row] = await sql<{ joined: boolean }[]>`
    SELECT pg_try_advisory_lock_shared(${GUEST_LOCK}) AS joined`;
  return row!.joined;
}

/** Whether no other connection is left; from the first call that finds no guest none can join any more. */
export async function isLeftAlone(sql: Database): Promise<boolean> {
  // The lock is taken again by each call, which does no harm: it ends with the connection.
  const [lock] = await sql<{ closed: boolean }[]>`
    SELECT pg_try_advisory_lock(${GUEST_LOCK}) AS closed`;
  if (!lock!.closed) return false;
  const [row] = await sql<{ others: bigint }[]>`
    SELECT count(*) AS others FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`;
  return Number(row!.others) === 0;
}
