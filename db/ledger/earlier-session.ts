import type { Database } from "../client.ts";

const POLL_MS = 20;
/** Postgres cuts names of sessions to this many bytes. */
const MAX_NAME_BYTES = 63;

/**
 * Ends the other sessions of this application name and resolves when they are gone. A statement whose
 * reply was lost with its connection may still be running, or stand before a lock: behind this it is
 * certainly committed or undone. Tries again while the database is out of reach.
 */
export async function endEarlierSession(sql: Database, applicationName: string): Promise<void> {
  const name = applicationName.slice(0, MAX_NAME_BYTES);
  for (;;) {
    try {
      const ended = await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = ${name} AND pid <> pg_backend_pid()`;
      if (ended.length === 0) return;
    } catch (error) {
      // Whatever else it is: nothing may be tried again before this is known.
      if ((error as { code?: unknown }).code === "CONNECTION_ENDED") return;
    }
    await Bun.sleep(POLL_MS);
  }
}
