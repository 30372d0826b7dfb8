import type { BatchStatus } from "../../src/lib/batch.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import { type Seal, sealingKeyId } from "./master-key.ts";

/**
 * Enough digits for the lines of the longest input, and the pieces of the longest result, to sort as numbers do.
 */
const LINE_DIGITS = 8;
const PIECE_DIGITS = 4;

function partOf(line: number, piece: number): string {
  return `${String(line).padStart(LINE_DIGITS, "0")}.${String(piece).padStart(PIECE_DIGITS, "0")}`;
}

/** Returns the lines that have their result. */
export async function linesWithResult(sql: Database, batchId: string): Promise<Set<number>> {
  const rows = await sql<{ line: number }[]>`
    SELECT line FROM batch_lines WHERE batch_id = ${batchId}`;
  return new Set(rows.map(({ line }) => line));
}

/** The result of a line in consecutive pieces. */
export interface LineResult {
  readonly line: number;
  readonly isFailed: boolean;
  readonly pieces: readonly Seal[];
}

/** Writes contents of a line in place of the existing ones. */
export async function writeContents(
  sql: DatabaseTransaction,
  batchId: string,
  { line, pieces }: Pick<LineResult, "line" | "pieces">,
): Promise<void> {
  const keyId = await sealingKeyId(sql);
  await sql`DELETE FROM batch_contents WHERE batch_id = ${batchId}
    AND part > ${partOf(line, 0)} AND part < ${partOf(line + 1, 0)}`;
  for (const [piece, seal] of pieces.entries()) {
    await sql`INSERT INTO batch_contents (batch_id, part, sealed)
      VALUES (${batchId}, ${partOf(line, piece)}, ${seal(keyId) as Buffer})
      ON CONFLICT (batch_id, part) DO UPDATE SET sealed = EXCLUDED.sealed`;
  }
}

export async function hasContents(sql: Database, batchId: string, line: number): Promise<boolean> {
  const [row] = await sql`SELECT 1 FROM batch_contents
    WHERE batch_id = ${batchId} AND part = ${partOf(line, 0)}`;
  return row !== undefined;
}

interface CountedLine extends Pick<LineResult, "line" | "isFailed"> {
  /** The request of the line, whose charge is written before. Undefined if the line was not called. */
  readonly requestId: string | undefined;
}

/**
 * Counts lines whose contents are written, each once, and adds their charges to the cost of the batch. Returns the
 * batch's status.
 */
export async function countLines(
  sql: DatabaseTransaction,
  batchId: string,
  lines: readonly CountedLine[],
): Promise<BatchStatus | undefined> {
  const [row] = await sql<{ status: BatchStatus }[]>`
    WITH counted AS (
      INSERT INTO batch_lines (batch_id, line, is_failed)
      SELECT ${batchId}, given.line, given.is_failed
      FROM unnest(${sql.array(lines.map(({ line }) => line))}::int[],
        ${sql.array(lines.map(({ isFailed }) => isFailed))}::boolean[]) AS given (line, is_failed)
      ON CONFLICT DO NOTHING RETURNING line, is_failed),
    charged AS (
      SELECT coalesce(-sum(t.amount_nano), 0)::bigint AS nano
      FROM counted JOIN unnest(${sql.array(lines.map(({ line }) => line))}::int[],
        ${sql.array(lines.map(({ requestId }) => requestId ?? ""))}::text[]) AS given (line, request_id) USING (line)
      CROSS JOIN LATERAL (SELECT amount_nano FROM transactions WHERE request_id = given.request_id LIMIT 1) t)
    UPDATE batches SET attempts = 0, cost_nano = cost_nano + (SELECT nano FROM charged),
      costed_lines = costed_lines + (SELECT count(*) FROM counted), completed = completed + (SELECT count(*) FROM counted WHERE NOT is_failed),
      failed = failed + (SELECT count(*) FROM counted WHERE is_failed)
    WHERE id = ${batchId} RETURNING status`;
  return row?.status;
}

const PIECES_AT_ONCE = 32;

/** Reads the sealed contents of all lines of a batch that ended this way, in their order. */
export async function* readContents(
  sql: Database,
  batchId: string,
  { isFailed }: Pick<LineResult, "isFailed">,
): AsyncGenerator<Uint8Array> {
  let after = "";
  for (;;) {
    const rows = await sql<{ part: string; sealed: Uint8Array }[]>`
      SELECT c.part, c.sealed FROM batch_contents c JOIN batch_lines l
        ON l.batch_id = c.batch_id AND l.line = split_part(c.part, '.', 1)::int
      WHERE c.batch_id = ${batchId} AND c.part > ${after} AND l.is_failed = ${isFailed}
      ORDER BY c.part LIMIT ${PIECES_AT_ONCE}`;
    for (const { sealed } of rows) yield sealed;
    if (rows.length < PIECES_AT_ONCE) return;
    after = rows.at(-1)!.part;
  }
}

const ROWS_AT_A_TIME = 1_000;

/** Removes some contents of the lines of a batch. Returns true if there may be more. */
export async function removeLines(sql: DatabaseTransaction, batchId: string): Promise<boolean> {
  const contents = await sql`DELETE FROM batch_contents WHERE batch_id = ${batchId} AND part IN (
    SELECT part FROM batch_contents WHERE batch_id = ${batchId} LIMIT ${ROWS_AT_A_TIME})`;
  if (contents.count === ROWS_AT_A_TIME) return true;
  const lines = await sql`DELETE FROM batch_lines WHERE batch_id = ${batchId} AND line IN (
    SELECT line FROM batch_lines WHERE batch_id = ${batchId} LIMIT ${ROWS_AT_A_TIME})`;
  return lines.count === ROWS_AT_A_TIME;
}
