import type { Database } from "../client.ts";
import { MAX_REPLENISH_DECLINES } from "./auto-replenish.ts";

/** A payment that operators may have to look at. */
export interface WaitingPayment {
  /**
   * `topup`: it is not known whether it was charged, or the payer has to authenticate. `replenishment`: automatic top-ups
   * were declined. `refund`: the processor has not decided. `dispute`: money that the processor has taken back for now.
   */
  readonly kind: "topup" | "replenishment" | "refund" | "dispute";
  readonly state: string;
  readonly organizationId: string;
  readonly organizationName: string;
  readonly amountNano: bigint;
  /** Null for a replenishment, which has no time of its own. */
  readonly sinceMs: number | null;
}

const MAX_OF_KIND = 50;

/** Lists waiting payments, those that wait longest first, at most 50 of each kind. */
export async function listWaitingPayments(sql: Database): Promise<WaitingPayment[]> {
  const rows = await sql<
    {
      kind: WaitingPayment["kind"];
      state: string;
      organization_id: string;
      name: string;
      amount_nano: string;
      since: Date | null;
    }[]
  >`
    SELECT w.kind, w.state, w.organization_id, o.name, w.amount_nano::text AS amount_nano, w.since
    FROM (
      (SELECT 'dispute' AS kind, state, organization_id, amount_nano, created_at AS since
        FROM payment_reversals WHERE kind = 'dispute' AND state = 'open'
        ORDER BY created_at LIMIT ${MAX_OF_KIND})
      UNION ALL
      (SELECT 'replenishment', CASE WHEN declines < ${MAX_REPLENISH_DECLINES} THEN 'retrying' ELSE 'stopped' END,
        organization_id, amount_nano, NULL
        FROM auto_replenish WHERE is_enabled AND declines > 0
        ORDER BY declines DESC, organization_id LIMIT ${MAX_OF_KIND})
      UNION ALL
      (SELECT 'topup', state, organization_id, amount_nano, created_at
        FROM payment_intents WHERE state IN ('pending', 'requires_action')
        ORDER BY next_look_at LIMIT ${MAX_OF_KIND})
      UNION ALL
      (SELECT 'refund', state, organization_id, amount_nano, created_at
        FROM payment_refunds WHERE state IN ('ordered', 'pending')
        ORDER BY next_look_at LIMIT ${MAX_OF_KIND})
    ) w JOIN organizations o ON o.id = w.organization_id
    ORDER BY since NULLS FIRST, w.organization_id`;
  return rows.map((row) => ({
    ...{ kind: row.kind, state: row.state },
    ...{ organizationId: row.organization_id, organizationName: row.name },
    amountNano: BigInt(row.amount_nano),
    sinceMs: row.since?.getTime() ?? null,
  }));
}
