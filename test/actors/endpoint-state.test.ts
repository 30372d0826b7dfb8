import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import * as endpoint from "../../actors/endpoint/state.ts";
import { type Circuit, circuit, type EndpointState } from "../../actors/endpoint/state.ts";

const NOW = Date.UTC(2026, 0, 1);
const OPEN_MS = 5_000;
const WINDOW_MS = 10_000;
const MAX_OPEN_MS = 60_000;

type CallOutcome =
  | { readonly kind: "success"; readonly latencyMs: number }
  | { readonly kind: "failure"; readonly retryAfterMs: number | undefined }
  | { readonly kind: "neutral" };

const success: CallOutcome = { kind: "success", latencyMs: 100 };
const failure: CallOutcome = { kind: "failure", retryAfterMs: undefined };
const neutral: CallOutcome = { kind: "neutral" };
const limited = (retryAfterMs: number): CallOutcome => ({ kind: "failure", retryAfterMs });

const initialEndpoint = endpoint.newEndpoint();

/** A copy of the state that has changed: cases here begin with the same one. */
function begin(state: EndpointState, nowMs: number): EndpointState {
  const next = { ...state };
  endpoint.begin(next, nowMs);
  return next;
}

function end(state: EndpointState, outcome: CallOutcome, nowMs: number): EndpointState {
  const next = { ...state };
  if (outcome.kind === "success")
    endpoint.succeed(
      next,
      { totalMs: outcome.latencyMs, answeredMs: outcome.latencyMs / 2, outputTokens: 10 },
      nowMs,
    );
  else if (outcome.kind === "failure") endpoint.fail(next, outcome.retryAfterMs, nowMs);
  else endpoint.leave(next, nowMs);
  return next;
}

function takeRetry(state: EndpointState, nowMs: number) {
  const next = { ...state };
  return { isAllowed: endpoint.takeRetry(next, nowMs), state: next };
}

/** Calls that are begun and end like this, one after another. */
function after(
  outcomes: readonly CallOutcome[],
  nowMs = NOW,
  from = initialEndpoint,
): EndpointState {
  return outcomes.reduce((state, outcome) => end(begin(state, nowMs), outcome, nowMs), from);
}

const times = (count: number, outcome: CallOutcome) => Array<CallOutcome>(count).fill(outcome);

const closed = initialEndpoint;
const almostOpen = after([...times(5, success), ...times(4, failure)]);
const open = after(times(10, failure));
const halfOpenMs = NOW + OPEN_MS;
const probing = begin(open, halfOpenMs);

describe("the circuit", () => {
  test.each<[string, EndpointState, number, Circuit]>([
    ["nothing was called", closed, NOW, "closed"],
    ["nine outcomes are failures", after(times(9, failure)), NOW, "closed"],
    ["ten outcomes are failures", open, NOW, "open"],
    ["half of ten are failures", after([...times(5, success), ...times(5, failure)]), NOW, "open"],
    ["less than half are", after([...times(6, success), ...times(5, failure)]), NOW, "closed"],
    ["many calls run, and the first ten that ended failed", manyRunning(100, 10), NOW, "open"],
    ["a 429 said how long to wait", after([limited(3_000)]), NOW, "open"],
    ["a 429 did not say", after([limited(0)]), NOW, "closed"],
    ["it is open, just before its time", open, NOW + OPEN_MS - 1, "open"],
    ["it is open, and its time has passed", open, NOW + OPEN_MS, "half-open"],
    ["one call has been let through to see", probing, halfOpenMs, "open"],
    ["failures lie in two windows", twoWindows(), NOW + WINDOW_MS, "closed"],
    ["callers were at fault", after(times(50, neutral)), NOW, "closed"],
    ["the clock was set back by an hour", open, NOW - 3_600_000, "half-open"],
  ])("where %s, is as it says", (_, state, nowMs, expected) => {
    expect(circuit(state, nowMs)).toBe(expected);
  });

  test.each<[string, EndpointState, CallOutcome, number, Circuit, Circuit]>([
    // state, outcome, at, then, and once the time of opening has passed
    ["closed, a success", closed, success, NOW, "closed", "closed"],
    ["closed, a failure", closed, failure, NOW, "closed", "closed"],
    ["closed, a neutral end", closed, neutral, NOW, "closed", "closed"],
    ["closed, a 429 with a time", closed, limited(1_000), NOW, "open", "half-open"],
    ["almost open, a failure", almostOpen, failure, NOW, "open", "half-open"],
    ["almost open, a success", almostOpen, success, NOW, "closed", "closed"],
    ["almost open, a neutral end", almostOpen, neutral, NOW, "closed", "closed"],
    ["open, a success of a call begun before", open, success, NOW, "open", "half-open"],
    ["open, a failure of a call begun before", open, failure, NOW + 1_000, "open", "half-open"],
    ["open, a neutral end", open, neutral, NOW, "open", "half-open"],
    ["half-open, a success", probing, success, halfOpenMs, "closed", "closed"],
    ["half-open, a failure", probing, failure, halfOpenMs, "open", "half-open"],
    ["half-open, a neutral end", probing, neutral, halfOpenMs, "half-open", "half-open"],
    ["half-open, a 429 with a time", probing, limited(4_000), halfOpenMs, "open", "half-open"],
  ])("%s", (_, state, outcome, atMs, then, later) => {
    const next = end(state, outcome, atMs);
    expect(circuit(next, atMs)).toBe(then);
    expect(circuit(next, atMs + OPEN_MS)).toBe(later);
  });

  test("lets one call at a time through to see", () => {
    expect(circuit(open, halfOpenMs)).toBe("half-open");
    expect(circuit(begin(open, halfOpenMs), halfOpenMs)).toBe("open");
    expect(circuit(begin(open, halfOpenMs), halfOpenMs + 3_600_000)).toBe("open");
  });

  test("waits as long as a provider asks, at most a minute, and a shorter wait does not cut a longer one", () => {
    const waiting = after([limited(30_000)]);
    expect(circuit(waiting, NOW + 29_999)).toBe("open");
    expect(circuit(waiting, NOW + 30_000)).toBe("half-open");
    const both = end(waiting, limited(1_000), NOW);
    expect(circuit(both, NOW + 29_999)).toBe("open");
    const longer = end(waiting, limited(45_000), NOW);
    expect(circuit(longer, NOW + 44_999)).toBe("open");
    const endless = after([limited(86_400_000)]);
    expect(circuit(endless, NOW + MAX_OPEN_MS - 1)).toBe("open");
    expect(circuit(endless, NOW + MAX_OPEN_MS)).toBe("half-open");
  });

  test("is not kept open by calls that were begun before it opened", () => {
    const late = end(end(open, failure, NOW + 4_000), failure, NOW + 4_900);
    expect(circuit(late, NOW + OPEN_MS)).toBe("half-open");
  });

  function manyRunning(calls: number, failed: number): EndpointState {
    let state = initialEndpoint;
    for (let i = 0; i < calls; i++) state = begin(state, NOW);
    for (let i = 0; i < failed; i++) state = end(state, failure, NOW);
    return state;
  }

  function twoWindows(): EndpointState {
    return after(times(5, failure), NOW + WINDOW_MS, after(times(9, failure)));
  }
});

describe("retries", () => {
  const allowed = (state: EndpointState, nowMs = NOW): number => {
    let count = 0;
    let taken = takeRetry(state, nowMs);
    while (taken.isAllowed) {
      count++;
      taken = takeRetry(taken.state, nowMs);
    }
    return count;
  };

  test.each([
    [0, 3],
    [1, 3],
    [15, 3],
    [19, 3],
    [20, 4],
    [100, 20],
    [1_000, 200],
  ])("of %d calls in the window are at most %d", (calls, retries) => {
    expect(allowed(after(times(calls, success)))).toBe(retries);
  });

  test("have a new budget in each window", () => {
    const used = takeRetry(takeRetry(takeRetry(initialEndpoint, NOW).state, NOW).state, NOW).state;
    expect(allowed(used)).toBe(0);
    expect(allowed(used, NOW + WINDOW_MS - 1)).toBe(0);
    expect(allowed(used, NOW + WINDOW_MS)).toBe(3);
  });
});

describe("whatever happens", () => {
  const step = fc.record({
    gapMs: fc.oneof(fc.nat({ max: 500 }), fc.nat({ max: 20_000 })),
    what: fc.constantFrom("begin", "success", "failure", "neutral", "limited", "retry"),
  });

  test("counts stay counts, running calls come to nothing, and the circuit never opens for more than a minute", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        let state = initialEndpoint;
        let nowMs = NOW;
        let running = 0;
        for (const { gapMs, what } of steps) {
          nowMs += gapMs;
          if (what === "begin") {
            state = begin(state, nowMs);
            running++;
          } else if (what === "retry") state = takeRetry(state, nowMs).state;
          else if (running > 0) {
            const outcome = { success, failure, neutral, limited: limited(7_000) }[what];
            state = end(state, outcome, nowMs);
            running--;
          }
          expect(state.running).toBe(running);
          expect(state.failures).toBeLessThanOrEqual(state.outcomes);
          expect(state.openUntilMs).toBeLessThanOrEqual(nowMs + MAX_OPEN_MS);
          if (!state.isProbing) {
            expect(circuit(state, nowMs + MAX_OPEN_MS)).not.toBe("open");
          }
        }
      }),
    );
  });

  test("latency follows the calls that succeed", () => {
    const slow = after(times(50, { kind: "success", latencyMs: 900 }));
    expect(slow.latencyMs).toBeCloseTo(900);
    const mixed = after([{ kind: "success", latencyMs: 100 }, failure], NOW, slow);
    expect(mixed.latencyMs).toBeCloseTo(740);
  });
});
