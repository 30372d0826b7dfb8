import type { AccountTotals } from "../../db/ledger/rows.ts";
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

/** The verbs that the ledger engine uses for spenders. */
export function spenderVerbs<Record extends Spender>() {
  type State = SpenderState<Record>;
  return {
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
