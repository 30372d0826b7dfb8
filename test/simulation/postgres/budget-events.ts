import type { ModelContext } from "./model-context.ts";
import type { AccountRow, ApiKeyRow } from "./tables.ts";
import type { Running, Transaction } from "./transaction.ts";

const EVENTS = [
  { bit: 1, percent: 50, type: "budget.threshold" },
  { bit: 2, percent: 80, type: "budget.threshold" },
  { bit: 4, percent: 100, type: "budget.threshold" },
  { bit: 8, percent: 100, type: "budget.exhausted" },
] as const;

/** As emit_budget_events: each event of a period at most once, as the bits of its account remember. */
export function* emitBudgetEvents(
  context: ModelContext,
  transaction: Transaction,
  ids: readonly string[],
  isExhausted: boolean,
): Running<void> {
  const { accounts, outbox } = context.tables;
  for (const id of [...new Set(ids)].sort()) {
    const account = accounts.read(transaction, id);
    const holder = account && budgetHolder(context, transaction, account);
    if (account === undefined || holder === undefined) continue;
    const isDay = account.kind === "day" || account.kind === "subject_day";
    const budget = isDay ? holder.daily_budget_nano : holder.monthly_budget_nano;
    if (budget === null) continue;
    const fresh = reached(account, budget, isExhausted) & ~account.budget_events;
    if (fresh === 0) continue;
    yield* accounts.update(transaction, id, (before) => ({
      ...before,
      budget_events: before.budget_events | fresh,
    }));
    for (const { bit, percent, type } of EVENTS) {
      if ((fresh & bit) === 0) continue;
      const order = String(context.nextId()).padStart(12, "0");
      yield* outbox.insert(transaction, order, {
        event_id: `evt_${order}`,
        organization_id: account.organization_id,
        type,
        data: { key_id: account.key_id, threshold_percent: percent, period_account: id },
      });
    }
  }
}

/** Returns the key or the subject whose budget an account counts. The account of an organization has none. */
function budgetHolder(
  { tables }: ModelContext,
  transaction: Transaction,
  { key_id: keyId, budget_id: budgetId }: AccountRow,
): Pick<ApiKeyRow, "daily_budget_nano" | "monthly_budget_nano"> | undefined {
  if (keyId) return tables.apiKeys.read(transaction, keyId);
  return budgetId ? tables.subjectBudgets.read(transaction, budgetId) : undefined;
}

/** Thresholds go by spend alone, but for 100 % with a 402. */
function reached(
  { posted_nano: posted }: AccountRow,
  budget: bigint,
  isExhausted: boolean,
): number {
  const exhausted = isExhausted ? 8 : 0;
  const isAt = (nano: bigint): boolean => posted > 0n && posted >= nano;
  if (isAt(budget - (isExhausted ? budget / 20n : 0n))) return 7 | exhausted;
  if (isAt(budget - budget / 5n)) return 3 | exhausted;
  return (isAt(budget - budget / 2n) ? 1 : 0) | exhausted;
}
