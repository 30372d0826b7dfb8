import { defineActor, type Turn, type TurnContext } from "../runtime/definition.ts";
import {
  begin,
  type CallOutcome,
  type Circuit,
  circuit,
  type EndpointState,
  end,
  initialEndpoint,
  takeRetry,
} from "./state.ts";

export interface EndpointHealth {
  readonly circuit: Circuit;
  readonly latencyMs: number;
  readonly running: number;
}

/** Health of one provider endpoint, as this process has seen it: whether to call it, and how often again. */
export const endpointActor = defineActor({
  kind: "endpoint",
  permissions: { reads: [], writes: [], events: [], network: "providers" },

  load: async (): Promise<EndpointState> => initialEndpoint,
  mayPassivate: (state) => state.running === 0,

  verbs: {
    health: (
      state: EndpointState,
      _: undefined,
      context: TurnContext,
    ): Turn<EndpointState, EndpointHealth> => ({
      state,
      reply: {
        circuit: circuit(state, context.nowMs),
        latencyMs: state.latencyMs,
        running: state.running,
      },
    }),

    begin: (
      state: EndpointState,
      _: undefined,
      context: TurnContext,
    ): Turn<EndpointState, undefined> => ({
      state: begin(state, context.nowMs),
      reply: undefined,
    }),

    end: (
      state: EndpointState,
      outcome: CallOutcome,
      context: TurnContext,
    ): Turn<EndpointState, undefined> => ({
      state: end(state, outcome, context.nowMs),
      reply: undefined,
    }),

    takeRetry(
      state: EndpointState,
      _: undefined,
      context: TurnContext,
    ): Turn<EndpointState, boolean> {
      const taken = takeRetry(state, context.nowMs);
      return { state: taken.state, reply: taken.isAllowed };
    },
  },
});
