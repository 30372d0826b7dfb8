import { subjectDayAccountId, subjectMonthAccountId } from "../../db/ledger/rows.ts";
import { loadSubjectBudget } from "../../db/queries/subject-budgets.ts";
import { budgetExhausted } from "../../src/lib/events/budget-exhausted.ts";
import { budgetThreshold } from "../../src/lib/events/budget-threshold.ts";
import {
  emptyPeriods,
  keepHolds,
  type PeriodNames,
  type Spender,
  type SpenderState,
  spenderState,
} from "../budget-periods/state.ts";
import { spenderVerbs } from "../budget-periods/verbs.ts";
import { defineActor } from "../runtime/definition.ts";
import type { ActorRegistry } from "../runtime/registry.ts";

type SubjectBudgetState = SpenderState<Spender>;

const PERIODS: PeriodNames = { day: subjectDayAccountId, month: subjectMonthAccountId };
const NONE: ReadonlyMap<string, boolean> = new Map();
/**
 * The record of a deleted budget, which has no limits. Requests that began under the budget are still charged to
 * its accounts.
 */
const DELETED: Spender = { isActive: true, dailyBudgetNano: null, monthlyBudgetNano: null };

/** The budget of one end user, tag, team or member. It changes only in its table, which is followed by a reload. */
export const subjectBudgetActor = defineActor({
  kind: "subject-budget",
  permissions: {
    reads: ["subject_budgets", "accounts"],
    writes: ["accounts", "outbox"],
    events: [budgetThreshold.type, budgetExhausted.type],
  },

  async load(id, context): Promise<SubjectBudgetState> {
    const { day, month } = emptyPeriods(PERIODS, id, context.nowMs);
    const { limits, totals } = await context.read(
      loadSubjectBudget(id, [day.accountId, month.accountId]),
    );
    return spenderState({
      id,
      record: limits === undefined ? DELETED : { isActive: true, ...limits },
      day: { ...day, ...totals.get(day.accountId) },
      month: { ...month, ...totals.get(month.accountId) },
      dayHeldNano: 0n,
      monthHeldNano: 0n,
      exhausted: NONE,
    });
  },

  reload: keepHolds<Spender>,
  mayPassivate: (state: SubjectBudgetState) =>
    state.dayHeldNano === 0n && state.monthHeldNano === 0n,

  verbs: spenderVerbs<Spender>(),
});

export type SubjectBudgetActors = ActorRegistry<
  SubjectBudgetState,
  (typeof subjectBudgetActor)["verbs"]
>;
