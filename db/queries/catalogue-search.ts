import type { Database } from "../client.ts";

/**
 * Returns the ids of the models that match every term, best first. A term matches if its words are consecutive, the
 * last one possibly incomplete, or if a description has them in another inflection. Names count most, short ones more
 * than long ones, then origin and description.
 *
 * @param terms at least one, each of at least one word of letters and digits in lower case
 */
export async function searchCatalogue(
  sql: Database,
  terms: readonly (readonly string[])[],
): Promise<string[]> {
  const begun = terms.map((words) => `(${inARow(words)}:*)`).join(" & ");
  const inflected = terms.map((words) => `(${inARow(words)})`).join(" & ");
  const rows = await sql<{ model_id: string }[]>`
    SELECT model_id FROM catalogue_search,
      LATERAL (SELECT to_tsquery('simple', ${begun}) || to_tsquery('english', ${inflected}) AS query) AS asked
    WHERE document @@ query
    ORDER BY ts_rank(ts_filter(document, '{a}'), query, ${DIVIDED_BY_LENGTH}) DESC,
      ts_rank(document, query) DESC, model_id COLLATE "C"`;
  return rows.map((row) => row.model_id);
}

/** Normalisation of ts_rank (PostgreSQL documentation, 12.3.3). */
const DIVIDED_BY_LENGTH = 2;

function inARow(words: readonly string[]): string {
  return words.map((word) => `'${word}'`).join(" <-> ");
}

/** A model's searchable words, separated by spaces. */
export interface CatalogueSearchEntry {
  readonly modelId: string;
  readonly title: string;
  readonly origin: string;
  readonly description: string;
}

/** Key of the advisory lock. No other user of the database has it. */
const SYNC_LOCK = 7_203_114_505;

/**
 * Replaces the entries of the search table. Writes only differences. Processes that do it at the same time take turns,
 * so they cannot deadlock; the last one decides.
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
