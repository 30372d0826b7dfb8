import type { StatementEffect } from "../ledger/effects.ts";

/** Returns an effect that emits the events of a 402 that the budgets of these periods cause. */
export function budgetExhaustedEffect(periodAccounts: readonly NewPeriod[]): StatementEffect {
  return {
    kind: "statement",
    name: "budget-exhausted",
    tables: ["accounts", "outbox"],
    events: ["budget.threshold", "budget.exhausted"],
    async run(sql) {
      const ids = periodAccounts.map((account) => account.id).sort();
      for (const account of periodAccounts) {
        const { id, kind, organizationId, keyId = null, budgetId = null, periodStart } = account;
        await sql`INSERT INTO accounts (id, kind, organization_id, key_id, budget_id, period_start)
          VALUES (${id}, ${budgetId === null ? kind : `subject_${kind}`}, ${organizationId}, ${keyId}, ${budgetId},
            ${periodStart}::text::date) ON CONFLICT (id) DO NOTHING`;
      }
      await sql`SELECT 1 FROM accounts WHERE id IN ${sql(ids)} ORDER BY id FOR UPDATE`;
      await sql`SELECT emit_budget_events(${sql.array(ids)}::text[], true)`;
    },
  };
}

/** A period of a key, or of the budget of a team, member, end user or tag. */
export interface NewPeriod {
  readonly id: string;
  readonly kind: "day" | "month";
  readonly organizationId: string;
  readonly keyId?: string;
  readonly budgetId?: string;
  readonly periodStart: string;
}
