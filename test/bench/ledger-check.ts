import type { Database } from "../../db/client.ts";

export interface LedgerCheck {
  readonly isExact: boolean;
  readonly findings: readonly string[];
}

/** Compares the ledger with what was answered, and with itself. */
export async function checkLedger(
  sql: Database,
  expected: { readonly answers: number; readonly abortedStreams: number },
): Promise<LedgerCheck> {
  const [row] = await sql<
    {
      answered: bigint;
      aborted: bigint;
      requests: bigint;
      sum: bigint;
      balance: bigint;
      periods: bigint;
      charged: bigint;
      gaps: bigint;
      attempts: bigint;
    }[]
  >`
    SELECT
      (SELECT count(*) FROM transactions WHERE type = 'usage' AND status = 200) AS answered,
      (SELECT count(*) FROM transactions WHERE type = 'usage' AND status = 499) AS aborted,
      (SELECT count(DISTINCT request_id) FROM transactions) AS requests,
      (SELECT sum(amount_nano)::bigint FROM transactions) AS sum,
      (SELECT sum(credit_nano - posted_nano)::bigint FROM accounts WHERE kind = 'org') AS balance,
      (SELECT sum(posted_nano)::bigint FROM accounts WHERE kind = 'month') AS periods,
      (SELECT -sum(amount_nano)::bigint FROM transactions WHERE type = 'usage') AS charged,
      (SELECT max(sequence) - count(*) FROM transactions) AS gaps,
      (SELECT count(*) FROM attempts) AS attempts`;
  if (row === undefined) throw new Error("the ledger could not be read");
  const { answers, abortedStreams } = expected;
  const findings: string[] = [];
  const same = (what: string, found: bigint | null, wanted: bigint | number | null) => {
    if (found !== (wanted === null ? null : BigInt(wanted))) {
      findings.push(`${what}: ${found}, expected ${wanted}`);
    }
  };
  same("transactions of answered requests", row.answered, answers);
  same("transactions of aborted streams", row.aborted, abortedStreams);
  same("different request ids", row.requests, answers + abortedStreams);
  same("sum of transactions, against the balance", row.sum, row.balance);
  same("charges of the month's accounts, against the transactions", row.periods, row.charged);
  same("gaps in the sequence", row.gaps, 0);
  same("attempts left over", row.attempts, 0);
  return { isExact: findings.length === 0, findings };
}
