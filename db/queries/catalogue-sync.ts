import type { Database } from "../client.ts";

/** A model's searchable words, separated by spaces. */
export interface CatalogueSearchEntry {
  readonly modelId: string;
  readonly title: string;
  readonly origin: string;
  readonly description: string;
}

/** Any number that no other user of the database takes for an advisory lock. */
const SYNC_LOCK = 7_203_114_505;

/**
 * Makes the search table hold these entries and no others. Writes only what differs. Processes that do
 * it at the same time take turns, so they cannot deadlock; the last one decides.
 */
export async function syncCatalogueSearch(
  sql: Database,
  entries: readonly CatalogueSearchEntry[],
): Promise<void> {
  const column = (name: keyof CatalogueSearchEntry) =>
    sql.array(entries.map((entry) => entry[name]));
  await sql.begin(async (transaction) => {
    await transaction`SELECT pg_advisory_xact_lock(${SYNC_LOCK})`;
    await transaction`
      WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest(${column("modelId")}::text[], ${column("title")}::text[],
          ${column("origin")}::text[], ${column("description")}::text[])
          AS entry (model_id, title, origin, description)
      ), removed AS (
        DELETE FROM catalogue_search
        WHERE NOT EXISTS (SELECT FROM wanted WHERE wanted.model_id = catalogue_search.model_id)
      )
      INSERT INTO catalogue_search (model_id, title, origin, description)
      SELECT model_id, title, origin, description FROM wanted
      WHERE NOT EXISTS (
        SELECT FROM catalogue_search AS present WHERE present.model_id = wanted.model_id
          AND present.title = wanted.title AND present.origin = wanted.origin
          AND present.description = wanted.description
      )
      ON CONFLICT (model_id) DO UPDATE SET
        title = excluded.title, origin = excluded.origin, description = excluded.description`;
  });
}
