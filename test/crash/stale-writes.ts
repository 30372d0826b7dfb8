import type { Database } from "../../db/client.ts";

/** What one instance of several writes in its own name: nothing of it may be committed once it is dead. */
const TABLES = [
  "transactions",
  "attempts",
  "holds",
  "idempotency_records",
  "actor_leases",
  "deliveries",
] as const;

/** Tells the database which start of a gateway a connection belongs to. */
export function urlOfLaunch(url: string, launch: string): string {
  const address = new URL(url);
  address.searchParams.set("several.launch", launch);
  return address.href;
}

/**
 * Makes the database itself a witness. Each start of a gateway names itself on its connections
 * (`urlOfLaunch`); what it writes is judged at the end of its transaction, right before the commit: a row
 * whose writer was declared dead by then is noted in `stale_writes`, with the time. What a start writes
 * before it is an instance has no writer: the first organization and its credit.
 */
export async function watchStaleWrites(sql: Database): Promise<void> {
  await sql.unsafe(`
    CREATE TABLE launches (launch text PRIMARY KEY, instance_id text, epoch bigint);
    CREATE TABLE stale_writes (writer text, what text, found jsonb,
      at timestamptz DEFAULT clock_timestamp());
    CREATE SEQUENCE writes_judged;
    CREATE FUNCTION note_launch() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO launches VALUES (current_setting('several.launch'), NEW.id, NEW.epoch);
      RETURN NULL;
    END $$;
    CREATE TRIGGER note_launch AFTER INSERT ON instances FOR EACH ROW
      WHEN (current_setting('several.launch', true) <> '') EXECUTE FUNCTION note_launch();
    CREATE FUNCTION judge_write() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
      v_launch text := current_setting('several.launch', true);
    BEGIN
      PERFORM nextval('writes_judged');
      IF EXISTS (SELECT 1 FROM launches l LEFT JOIN instances i
          ON i.id = l.instance_id AND i.epoch = l.epoch AND i.alive
          WHERE l.launch = v_launch AND i.id IS NULL) THEN
        INSERT INTO stale_writes VALUES (v_launch, TG_OP || ' ' || TG_TABLE_NAME, to_jsonb(NEW));
      END IF;
      RETURN NULL;
    END $$;`);
  for (const table of TABLES) {
    await sql.unsafe(`CREATE CONSTRAINT TRIGGER judge_write AFTER INSERT OR UPDATE ON ${table}
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
      WHEN (current_setting('several.launch', true) <> '') EXECUTE FUNCTION judge_write()`);
  }
}

/** Writes of the dead, in words. */
export async function staleWrites(sql: Database): Promise<string[]> {
  const rows = await sql`SELECT * FROM stale_writes ORDER BY at`;
  return rows.map((row) => `O1 written by the dead: ${JSON.stringify(row)}`);
}

/** How many writes were judged so far. */
export async function writesJudged(sql: Database): Promise<number> {
  const [row] = await sql<{ last: bigint }[]>`SELECT last_value AS last FROM writes_judged`;
  return Number(row!.last);
}
