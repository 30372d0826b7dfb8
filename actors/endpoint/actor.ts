import { defineActor, type Turn, type TurnContext } from "../runtime/definition.ts";
import {
  begin,
  type CallMeasures,
  type Circuit,
  circuit,
  type EndpointFailure,
  type EndpointState,
  fail,
  leave,
  newEndpoint,
  succeed,
  takeRetry,
} from "./state.ts";

export interface EndpointHealth {
  readonly circuit: Circuit;
  /** Smoothed average; 0 before the first measurement. */
  readonly latencyMs: number;
  readonly answeredMs: number;
  readonly tokensPerSecond: number;
  readonly running: number;
  /** Number of times that the circuit has opened. */
  readonly openings: number;
  readonly lastFailure: EndpointFailure | undefined;
}

/** A failed call, as its caller reports it. */
export interface ReportedFailure extends Omit<EndpointFailure, "atMs"> {
  /** Set if the provider stated a wait. */
  readonly retryAfterMs: number | undefined;
}

/** The health of one provider endpoint, as measured by this process: whether to call it, and the retry budget. */
export const endpointActor = defineActor({
  kind: "endpoint",
  permissions: { reads: [], writes: [], events: [] },

  load: async (): Promise<EndpointState> => newEndpoint(),
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
        answeredMs: state.answeredMs,
        tokensPerSecond: state.tokensPerSecond,
        running: state.running,
        openings: state.openings,
        lastFailure: state.lastFailure,
      },
    }),

    begin(state: EndpointState, _: undefined, context: TurnContext): undefined {
      begin(state, context.nowMs);
    },

    succeed(state: EndpointState, measures: CallMeasures, context: TurnContext): undefined {
      succeed(state, measures, context.nowMs);
    },

    fail(
      state: EndpointState,
      { kind, status, retryAfterMs }: ReportedFailure,
      context: TurnContext,
    ): undefined {
      fail(state, retryAfterMs, context.nowMs);
      state.lastFailure = { kind, status, atMs: context.nowMs };
    },

    leave(state: EndpointState, _: undefined, context: TurnContext): undefined {
      leave(state, context.nowMs);
    },

    takeRetry: (
      state: EndpointState,
      _: undefined,
      context: TurnContext,
    ): Turn<EndpointState, boolean> => ({ state, reply: takeRetry(state, context.nowMs) }),
  },
});
