/**
 * Health of one endpoint: a provider and a model of it. Its circuit is
 *
 *   closed     calls go through; outcomes of the last ten seconds are counted
 *   open       calls are passed over in favour of other endpoints until `openUntilMs`
 *   half-open  one call is let through to see; its outcome closes or opens the circuit again
 *
 * closed → open: at least 10 outcomes in the window and half of them failures, or a 429 that says how
 * long to wait. open → half-open: the time has passed. half-open → closed or open: by the outcome. Calls
 * that end while it is open were begun before: they close nothing, but a longer wait is heeded.
 *
 * Retries draw on a budget: 20 % of the window's calls, and at least 3, so that a provider in trouble is
 * not given more load.
 */
export interface EndpointState {
  readonly windowStartMs: number;
  readonly calls: number;
  /** Calls that succeeded or failed; those still running have no outcome yet. */
  readonly outcomes: number;
  readonly failures: number;
  readonly retries: number;
  readonly openUntilMs: number;
  readonly isProbing: boolean;
  readonly running: number;
  /** Exponentially weighted, of calls that succeeded. */
  readonly latencyMs: number;
}

export type CallOutcome =
  | { readonly kind: "success"; readonly latencyMs: number }
  | { readonly kind: "failure"; readonly retryAfterMs: number | undefined }
  /** The endpoint is not to blame: the caller's fault, or the caller went away. */
  | { readonly kind: "neutral" };

const WINDOW_MS = 10_000;
const MIN_OUTCOMES = 10;
const FAILURE_RATIO = 0.5;
const OPEN_MS = 5_000;
const MAX_OPEN_MS = 60_000;
const RETRY_RATIO = 0.2;
const MIN_RETRIES = 3;
const LATENCY_WEIGHT = 0.2;

export const initialEndpoint: EndpointState = {
  windowStartMs: 0,
  calls: 0,
  outcomes: 0,
  failures: 0,
  retries: 0,
  openUntilMs: 0,
  isProbing: false,
  running: 0,
  latencyMs: 0,
};

export type Circuit = "closed" | "open" | "half-open";

export function circuit(state: EndpointState, nowMs: number): Circuit {
  if (state.openUntilMs === 0) return "closed";
  return isWaiting(state, nowMs) || state.isProbing ? "open" : "half-open";
}

export function begin(state: EndpointState, nowMs: number): EndpointState {
  const rolled = rollWindow(state, nowMs);
  return {
    ...rolled,
    calls: rolled.calls + 1,
    running: rolled.running + 1,
    isProbing: rolled.isProbing || circuit(state, nowMs) === "half-open",
  };
}

export function end(state: EndpointState, outcome: CallOutcome, nowMs: number): EndpointState {
  const ended = { ...rollWindow(state, nowMs), running: Math.max(0, state.running - 1) };
  if (outcome.kind === "neutral") return { ...ended, isProbing: false };
  const outcomes = ended.outcomes + 1;
  if (outcome.kind === "success") {
    const told = { ...ended, outcomes, latencyMs: smoothed(ended.latencyMs, outcome.latencyMs) };
    return isWaiting(state, nowMs) ? told : { ...told, openUntilMs: 0, isProbing: false };
  }
  const failed = { ...ended, outcomes, failures: ended.failures + 1, isProbing: false };
  const openMs = openDuration(failed, outcome.retryAfterMs, nowMs);
  if (openMs === 0) return failed;
  const waitedForMs = isWaiting(state, nowMs) ? state.openUntilMs : 0;
  return { ...failed, openUntilMs: Math.max(waitedForMs, nowMs + openMs) };
}

/** Within the time that the circuit was opened for; a clock that was set back makes it no longer. */
function isWaiting({ openUntilMs }: EndpointState, nowMs: number): boolean {
  return nowMs < openUntilMs && openUntilMs - nowMs <= MAX_OPEN_MS;
}

function smoothed(beforeMs: number, latencyMs: number): number {
  return beforeMs === 0 ? latencyMs : beforeMs + LATENCY_WEIGHT * (latencyMs - beforeMs);
}

function openDuration(
  state: EndpointState,
  retryAfterMs: number | undefined,
  nowMs: number,
): number {
  if (retryAfterMs !== undefined && retryAfterMs > 0) return Math.min(retryAfterMs, MAX_OPEN_MS);
  if (isWaiting(state, nowMs)) return 0;
  const wasOpen = state.openUntilMs > 0;
  const { outcomes, failures } = state;
  const isFailing = outcomes >= MIN_OUTCOMES && failures >= outcomes * FAILURE_RATIO;
  return wasOpen || isFailing ? OPEN_MS : 0;
}

/** Whether one more retry is within the budget, and the state that has counted it. */
export function takeRetry(
  state: EndpointState,
  nowMs: number,
): { readonly state: EndpointState; readonly isAllowed: boolean } {
  const rolled = rollWindow(state, nowMs);
  const budget = Math.max(MIN_RETRIES, Math.floor(rolled.calls * RETRY_RATIO));
  if (rolled.retries >= budget) return { state: rolled, isAllowed: false };
  return { state: { ...rolled, retries: rolled.retries + 1 }, isAllowed: true };
}

function rollWindow(state: EndpointState, nowMs: number): EndpointState {
  const ageMs = nowMs - state.windowStartMs;
  if (ageMs >= 0 && ageMs < WINDOW_MS) return state;
  return { ...state, windowStartMs: nowMs, calls: 0, outcomes: 0, failures: 0, retries: 0 };
}
