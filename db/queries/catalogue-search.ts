import type { Database } from "../client.ts";

/**
 * Ids of the models in which every term is found, best first. A term is found where its words stand in a row,
 * the last of them perhaps only begun, or where a description has them in another inflection. Names count
 * first, short ones before long ones, then origin and description.
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
