import type { AccountTotals } from "../../db/ledger/rows.ts";
import { budgetExhaustedEffect, type NewPeriod } from "../../db/queries/budget-events.ts";
import type { Turn, TurnContext } from "../runtime/definition.ts";
import {
  changeHeld,
  extendHold,
  type HeldChange,
  headroom,
  hold,
  notePosted,
  type Periods,
  rollPeriods,
  type Spender,
  type SpenderHeadroom,
  type SpenderState,
} from "./state.ts";

/** A period whose budget causes a 402. */
export interface RefusingPeriod extends NewPeriod {
  /** True if at least 95 % of the budget is spent. */
  readonly isNearlySpent: boolean;
}

/** The verbs that the ledger engine uses for spenders. */
export function spenderVerbs<Record extends Spender>() {
  type State = SpenderState<Record>;
  return {
    /** Emits the events of a 402 that the budgets of these periods cause, unless they are known to be emitted. */
    exhausted(state: State, periods: readonly RefusingPeriod[]): Turn<State, undefined> {
      const fresh = periods.filter(({ id, isNearlySpent }) => {
        const before = state.exhausted.get(id);
        return before === undefined || (isNearlySpent && !before);
      });
      if (fresh.length === 0) return { state, reply: undefined };
      const noted = fresh.map(({ id, isNearlySpent }) => [id, isNearlySpent] as const);
      return {
        state: { ...state, exhausted: new Map([...state.exhausted, ...noted]) },
        reply: undefined,
        effects: [budgetExhaustedEffect(fresh)],
      };
    },

    headroom(state: State, _: undefined, context: TurnContext): Turn<State, SpenderHeadroom> {
      const rolled = rollPeriods(state, context.nowMs);
      return { state: rolled, reply: headroom(rolled) };
    },

    /** Replies the periods of the hold, or undefined if the hold is not allowed. */
    hold(state: State, holdNano: bigint, context: TurnContext): Turn<State, Periods | undefined> {
      const rolled = rollPeriods(state, context.nowMs);
      const held = hold(rolled, holdNano);
      return held === undefined
        ? { state: rolled, reply: undefined }
        : { state: held, reply: held };
    },

    /** Replies false if the hold cannot be extended. */
    extendHold(state: State, change: HeldChange): Turn<State, boolean> {
      const held = extendHold(state, change);
      return { state: held ?? state, reply: held !== undefined };
    },

    changeHeld: (state: State, change: HeldChange): Turn<State, undefined> => ({
      state: changeHeld(state, change),
      reply: undefined,
    }),

    notePosted: (
      state: State,
      totals: ReadonlyMap<string, AccountTotals>,
    ): Turn<State, undefined> => ({ state: notePosted(state, totals), reply: undefined }),
  };
}
