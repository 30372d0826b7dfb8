import type { Database, DatabaseTransaction } from "../client.ts";
import { limitPause } from "./master-key.ts";

/** A table with columns that are sealed with the master key. */
interface SealedTable {
  readonly table: string;
  /** Columns of the primary key, of type text. */
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /**
   * Number of rows that are resealed in one transaction. Their values are in memory in the meantime.
   */
  readonly batchRows: number;
}

/**
 * All columns with sealed values. Values of a column that is not listed are lost with the key that sealed them.
 */
export const SEALED_TABLES: readonly SealedTable[] = [
  { table: "webhooks", key: ["id"], columns: ["secret", "previous_secret"], batchRows: 100 },
  { table: "alert_channels", key: ["id"], columns: ["sealed_url"], batchRows: 100 },
  { table: "provider_keys", key: ["id"], columns: ["secret"], batchRows: 100 },
  { table: "identity_providers", key: ["id"], columns: ["secret"], batchRows: 100 },
  { table: "people", key: ["id"], columns: ["totp_secret"], batchRows: 100 },
  { table: "configuration_entries", key: ["kind", "id"], columns: ["secret"], batchRows: 100 },
  {
    table: "idempotency_records",
    key: ["key_id", "idempotency_key"],
    columns: ["body"],
    // Each up to 1 MB.
    batchRows: 16,
  },
  {
    table: "answer_steps",
    key: ["key_id", "idempotency_key"],
    columns: ["sealed"],
    // Each up to 2 MB.
    batchRows: 8,
  },
  {
    table: "response_contents",
    key: ["response_id", "part"],
    columns: ["sealed"],
    // Each up to 256 KB.
    batchRows: 64,
  },
  {
    table: "batch_contents",
    key: ["batch_id", "part"],
    columns: ["sealed"],
    // Each up to 256 KB.
    batchRows: 64,
  },
  {
    table: "cached_answers",
    key: ["organization_id", "key_hash"],
    columns: ["sealed"],
    // Each up to 1 MB.
    batchRows: 16,
  },
];

/** Returns the resealed value. Undefined: it does not change. */
export type Reseal = (sealed: Uint8Array) => Uint8Array | undefined;

type Row = Readonly<Record<string, string | Uint8Array | null>>;
/** The primary key of the last row that was read. */
export type SealedValueCursor = readonly string[];

/** Reads all sealed values, in no particular order, a bounded number at a time. */
export async function* readSealedValues(
  sql: Database | DatabaseTransaction,
): AsyncGenerator<Uint8Array> {
  for (const table of SEALED_TABLES) {
    let rows: Row[];
    let after: SealedValueCursor = startOf(table);
    do {
      rows = await readRows(sql, table, after, "");
      for (const row of rows) yield* sealedIn(table, row);
      after = cursorOf(table, rows.at(-1)) ?? after;
    } while (rows.length === table.batchRows);
  }
}

/**
 * How long a batch waits for a row, in milliseconds. Below the time after which the database checks for deadlocks.
 */
const LOCK_TIMEOUT_MS = 300;

/**
 * Reseals one batch in one transaction. Returns undefined if no row is left. A transaction that changes one of its rows
 * waits for it. Rejects with 55P03 if another transaction holds a row for too long: then nothing was done, and the
 * batch can be tried again.
 */
export function resealBatch(
  sql: Database,
  keyId: string,
  table: SealedTable,
  after: SealedValueCursor,
  reseal: Reseal,
): Promise<SealedValueCursor | undefined> {
  return sql.begin(async (transaction) => {
    await limitPause(transaction);
    await transaction`SELECT set_config('lock_timeout', ${`${LOCK_TIMEOUT_MS}ms`}, true)`;
    const [row] = await transaction`SELECT 1 FROM master_key WHERE key_id = ${keyId} FOR SHARE`;
    if (row === undefined)
      throw new Error("another process has changed the master key in the meantime");
    const rows = await readRows(transaction, table, after, "FOR NO KEY UPDATE");
    for (const one of rows) await resealRow(transaction, table, one, reseal);
    return rows.length === table.batchRows ? cursorOf(table, rows.at(-1)) : undefined;
  });
}

/** Returns the position before the first row: no id is empty. */
export function startOf({ key }: SealedTable): SealedValueCursor {
  return key.map(() => "");
}

function cursorOf({ key }: SealedTable, row: Row | undefined): SealedValueCursor | undefined {
  return row && key.map((name) => row[name] as string);
}

function sealedIn({ columns }: SealedTable, row: Row): Uint8Array[] {
  return columns.map((name) => row[name]).filter((value) => value instanceof Uint8Array);
}

function readRows(
  sql: Database | DatabaseTransaction,
  { table, key, columns, batchRows }: SealedTable,
  after: SealedValueCursor,
  locking: "" | "FOR NO KEY UPDATE",
): Promise<Row[]> {
  const names = key.join(", ");
  const isSealed = columns.map((name) => `${name} IS NOT NULL`).join(" OR ");
  return sql.unsafe<Row[]>(
    `SELECT ${names}, ${columns.join(", ")} FROM ${table}
     WHERE (${names}) > (${parameters(key, 1)}) AND (${isSealed})
     ORDER BY ${names} LIMIT ${batchRows} ${locking}`,
    [...after],
  );
}

async function resealRow(
  transaction: DatabaseTransaction,
  { table, key, columns }: SealedTable,
  row: Row,
  reseal: Reseal,
): Promise<void> {
  const fresh = columns.map((name) => {
    const value = row[name];
    return value instanceof Uint8Array ? (reseal(value) ?? value) : null;
  });
  if (fresh.every((value, n) => value === row[columns[n]!])) return;
  const assignments = columns.map((name, n) => `${name} = $${n + 1}`).join(", ");
  await transaction.unsafe(
    `UPDATE ${table} SET ${assignments}
     WHERE (${key.join(", ")}) = (${parameters(key, columns.length + 1)})`,
    [...fresh, ...key.map((name) => row[name] as string)] as never[],
  );
}

function parameters(names: readonly string[], first: number): string {
  return names.map((_, n) => `$${first + n}`).join(", ");
}
