import type { DatabaseTransaction } from "../client.ts";

/** Start inclusive, end exclusive. Undefined: no bound. */
export interface TimeSpan {
  readonly fromMs: number | undefined;
  readonly beforeMs: number | undefined;
}

/** A time span in numbers of transactions. */
export interface SequenceSpan {
  readonly from: bigint | undefined;
  readonly before: bigint | undefined;
}

/**
 * Returns the numbers between which an organization's transactions of a time span lie. Transactions are numbered in the
 * order of their commits, and their times come from the database's clock, which may have been set back. So the span is
 * wider by CLOCK_SLACK at both ends, and the caller still compares times.
 */
export async function sequenceSpan(
  snapshot: DatabaseTransaction,
  organizationId: string,
  { fromMs, beforeMs }: TimeSpan,
): Promise<SequenceSpan> {
  const [from, before] = await Promise.all([
    fromMs === undefined
      ? undefined
      : firstSince(snapshot, organizationId, fromMs, `-${CLOCK_SLACK}`),
    beforeMs === undefined
      ? undefined
      : firstSince(snapshot, organizationId, beforeMs, CLOCK_SLACK),
  ]);
  return { from: from?.low, before: before?.high };
}

/** Twice the largest step by which the clock may have been set back. */
const CLOCK_SLACK = "10 minutes";

/**
 * Returns the number of the first transaction since a time, in the order of their numbers. Returns the next number if
 * there is none yet.
 */
export async function firstSequenceSince(
  snapshot: DatabaseTransaction,
  organizationId: string,
  timeMs: number,
): Promise<bigint> {
  return (await firstSince(snapshot, organizationId, timeMs, "0")).low;
}

/**
 * Returns the number of the first transaction since a time, by binary search: some 25 reads of the primary key among
 * ten million. `low` and `high` are equal unless a number is missing.
 */
async function firstSince(
  snapshot: DatabaseTransaction,
  organizationId: string,
  timeMs: number,
  shift: string,
): Promise<{ readonly low: bigint; readonly high: bigint }> {
  const [row] = await snapshot<{ low: bigint; high: bigint }[]>`
    WITH RECURSIVE bound AS (SELECT ${new Date(timeMs)}::timestamptz + ${shift}::interval AS at),
    halving (low, high) AS (
      SELECT 1::bigint, coalesce(max(sequence), 0) + 1 FROM transactions
      WHERE organization_id = ${organizationId}
      UNION ALL
      SELECT CASE WHEN middle.is_before THEN middle.sequence + 1 ELSE halving.low END,
        CASE WHEN middle.is_before THEN halving.high ELSE middle.sequence END
      FROM halving CROSS JOIN LATERAL (
        SELECT sequence, created_at < (SELECT at FROM bound) AS is_before FROM transactions
        WHERE organization_id = ${organizationId} AND sequence = (halving.low + halving.high) / 2
        LIMIT 1
      ) middle
      WHERE halving.low < halving.high
    )
    SELECT low, high FROM halving ORDER BY high - low LIMIT 1`;
  return row!;
}
