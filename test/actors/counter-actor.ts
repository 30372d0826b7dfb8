import { defineActor, type Turn, type TurnContext } from "../../actors/runtime/definition.ts";
import type { Query } from "../../db/client.ts";
import type { Effect } from "../../db/ledger/effects.ts";
import { statement } from "./fake-environment.ts";

export interface CounterState {
  /** What the table knows. */
  readonly total: number;
  /** What only this memory knows. */
  readonly held: number;
}

export function readTotal(tables: readonly string[] = ["counters"]): Query<number> {
  return { name: "counter-load", tables, run: () => Promise.reject(new Error("not run here")) };
}

/** A counter that writes each change of its total, and holds something in memory alone. */
export const counterActor = defineActor({
  kind: "counter",
  permissions: {
    reads: ["counters"],
    writes: ["counters"],
    events: ["counter.added"],
  },
  async load(_id, context): Promise<CounterState> {
    return { total: await context.read(readTotal()), held: 0 };
  },
  reload: (previous, loaded): CounterState => ({ ...loaded, held: previous.held }),
  mayPassivate: (state) => state.held === 0,
  verbs: {
    total: (state: CounterState, _: undefined): Turn<CounterState, number> => ({
      state,
      reply: state.total,
    }),
    hold: (state: CounterState, held: number): Turn<CounterState, number> => ({
      state: { ...state, held: state.held + held },
      reply: state.held + held,
    }),
    add: (state: CounterState, by: number): Turn<CounterState, number> => ({
      state: { ...state, total: state.total + by },
      reply: state.total + by,
      effects: [statement(`set ${state.total + by}`)],
    }),
    /** Writes something, and leaves the state as it was. */
    tell: (state: CounterState, name: string): Turn<CounterState, string> => ({
      state,
      reply: name,
      effects: [statement(name)],
    }),
    now: (
      state: CounterState,
      _: undefined,
      context: TurnContext,
    ): Turn<CounterState, number[]> => ({
      state,
      reply: [context.nowMs, context.random()],
    }),
    cause: (state: CounterState, effects: readonly Effect[]): Turn<CounterState, number> => ({
      state: { ...state, total: -1 },
      reply: -1,
      effects,
    }),
    fail(_state: CounterState, message: string): Turn<CounterState, number> {
      throw new Error(message);
    },
  },
});
