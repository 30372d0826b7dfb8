import type { Database } from "../../db/client.ts";

/** Everything that the schema of a database consists of, in an order that does not depend on its history. */
export async function readCatalog(sql: Database) {
  const inSchema = sql`relnamespace = current_schema()::regnamespace`;
  return {
    tables: await sql`
      SELECT relname AS name, relkind AS kind, reloptions AS options FROM pg_class
      WHERE ${inSchema} AND relkind IN ('r', 'v', 'S') ORDER BY 1`,
    // Dropped columns leave gaps in attnum.
    columns: await sql`
      SELECT c.relname AS table, a.attname AS name,
        row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum)::int AS position,
        format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_not_null, a.attstorage AS storage,
        a.attidentity AS identity, a.attgenerated AS generated, a.attcollation AS collation,
        pg_get_expr(d.adbin, d.adrelid) AS default
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
      WHERE ${inSchema} AND c.relkind = 'r' ORDER BY 1, 3`,
    // From version 18 on, NOT NULL is a constraint with a name.
    constraints: await sql`
      SELECT conrelid::regclass::text AS table, conname AS name, pg_get_constraintdef(oid) AS definition
      FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND contype <> 'n' ORDER BY 1, 2`,
    indexes: await sql`
      SELECT pg_get_indexdef(oid) AS definition FROM pg_class WHERE ${inSchema} AND relkind = 'i' ORDER BY 1`,
    triggers: await sql`
      SELECT pg_get_triggerdef(t.oid) AS definition, t.tgenabled AS enabled FROM pg_trigger t
      WHERE NOT t.tgisinternal ORDER BY 1`,
    functions: await sql`
      SELECT CASE prokind WHEN 'a' THEN oid::regprocedure::text ELSE pg_get_functiondef(oid) END AS definition
      FROM pg_proc WHERE pronamespace = current_schema()::regnamespace ORDER BY 1`,
    views: await sql`
      SELECT relname AS name, pg_get_viewdef(oid) AS definition FROM pg_class
      WHERE ${inSchema} AND relkind = 'v' ORDER BY 1`,
  };
}
