import type { Database } from "../../db/client.ts";

/** A table that takes no rows for now. */
export interface UnwillingTable {
  /** How often it has refused one. */
  refusals(): Promise<number>;
  relent(): Promise<void>;
}

/** Refuses every row of this table with this SQLSTATE, as a server does whose disk is full. */
export async function refuseRows(
  sql: Database,
  table: string,
  state: string,
): Promise<UnwillingTable> {
  const name = `unwilling_${table}`;
  // A sequence keeps its count where the transaction is undone.
  await sql.unsafe(`CREATE SEQUENCE ${name}`);
  await sql.unsafe(`CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      PERFORM nextval('${name}');
      RAISE EXCEPTION 'not now' USING ERRCODE = '${state}';
    END $$`);
  await sql.unsafe(`CREATE TRIGGER ${name} BEFORE INSERT OR UPDATE ON ${table}
    FOR EACH ROW EXECUTE FUNCTION ${name}()`);
  return {
    async refusals() {
      const [row] = await sql.unsafe<{ count: number }[]>(
        `SELECT CASE WHEN is_called THEN last_value ELSE 0 END::int AS count FROM ${name}`,
      );
      return row!.count;
    },
    async relent() {
      await sql.unsafe(`DROP FUNCTION ${name}() CASCADE`);
      await sql.unsafe(`DROP SEQUENCE ${name}`);
    },
  };
}
