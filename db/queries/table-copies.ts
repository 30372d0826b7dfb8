import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Database, DatabaseTransaction } from "../client.ts";

type Session = Database | DatabaseTransaction;

/** A table with its columns that are not generated. */
export interface CopiedTable {
  readonly name: string;
  readonly columns: readonly string[];
}

/** Returns the named tables that exist, each after the tables that its foreign keys refer to. */
export async function readTables(sql: Session, names: readonly string[]): Promise<CopiedTable[]> {
  const tables = await sql<{ name: string; columns: string[]; refers_to: string[] }[]>`
    SELECT c.relname::text AS name,
      ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum) AS columns,
      ARRAY(SELECT DISTINCT other.relname::text FROM pg_constraint f JOIN pg_class other ON other.oid = f.confrelid
        WHERE f.conrelid = c.oid AND f.contype = 'f' AND f.confrelid <> c.oid) AS refers_to
    FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
      AND c.relname = ANY (${sql.array([...names])}::text[])
    ORDER BY c.relname`;
  const ordered: CopiedTable[] = [];
  const left = [...tables];
  while (left.length > 0) {
    const next = left.findIndex(
      (table) => !left.some((other) => other !== table && table.refers_to.includes(other.name)),
    );
    if (next === -1) throw new Error(`${left[0]!.name} and others refer to each other`);
    const [{ name, columns }] = left.splice(next, 1) as [(typeof tables)[number]];
    ordered.push({ name, columns });
  }
  return ordered;
}

/** Returns the rows in the format of COPY, one per line. */
export function copyOut(
  transaction: DatabaseTransaction,
  { name, columns }: CopiedTable,
): Promise<Readable> {
  return transaction
    .unsafe(`COPY (SELECT ${list(columns)} FROM ${quoted(name)}) TO STDOUT`)
    .readable();
}

/**
 * Writes the rows that `copyOut` returned. The table's own triggers do not fire, because their results are in other
 * tables.
 */
export async function copyIn(
  transaction: DatabaseTransaction,
  { name, columns }: CopiedTable,
  rows: AsyncIterable<Uint8Array>,
): Promise<void> {
  await transaction.unsafe(`ALTER TABLE ${quoted(name)} DISABLE TRIGGER USER`);
  const writable: Writable = await transaction
    .unsafe(`COPY ${quoted(name)} (${list(columns)}) FROM STDIN`)
    .writable();
  await pipeline(rows, writable);
  await transaction.unsafe(`ALTER TABLE ${quoted(name)} ENABLE TRIGGER USER`);
}

export interface SequenceState {
  readonly name: string;
  readonly lastValue: string;
  readonly isCalled: boolean;
}

/**
 * Returns the sequences of the tables' columns. A sequence is in no snapshot: read it after the rows that it has
 * numbered.
 */
export async function readSequences(
  sql: Session,
  tables: readonly CopiedTable[],
): Promise<SequenceState[]> {
  const found = await sql<{ name: string }[]>`
    SELECT s.relname::text AS name FROM pg_class s
    JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i')
    JOIN pg_class t ON t.oid = d.refobjid AND d.refclassid = 'pg_class'::regclass
    WHERE s.relkind = 'S' AND t.relnamespace = current_schema()::regnamespace
      AND t.relname = ANY (${sql.array(tables.map(({ name }) => name))}::text[])
    ORDER BY s.relname`;
  const states: SequenceState[] = [];
  for (const { name } of found) {
    const [row] = await sql.unsafe<{ last_value: string; is_called: boolean }[]>(
      `SELECT last_value::text, is_called FROM ${quoted(name)}`,
    );
    states.push({ name, lastValue: row!.last_value, isCalled: row!.is_called });
  }
  return states;
}

export async function setSequence(
  sql: DatabaseTransaction,
  { name, lastValue, isCalled }: SequenceState,
): Promise<void> {
  await sql`SELECT setval(${quoted(name)}::regclass, ${lastValue}::bigint, ${isCalled})`;
}

function list(columns: readonly string[]): string {
  return columns.map(quoted).join(", ");
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
