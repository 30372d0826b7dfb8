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
 *
 * Each call changes it twice, so it is changed in place: only its actor refers to it.
 */
export interface EndpointState {
  windowStartMs: number;
  calls: number;
  /** Calls that succeeded or failed; those still running have no outcome yet. */
  outcomes: number;
  failures: number;
  retries: number;
  openUntilMs: number;
  isProbing: boolean;
  running: number;
  /** Exponentially weighted, of calls that succeeded: until the end, and until the first answer. */
  latencyMs: number;
  answeredMs: number;
  /** Exponentially weighted, of calls that succeeded and had output tokens; 0 before the first. */
  tokensPerSecond: number;
}

/** What was measured of a call that succeeded. */
export interface CallMeasures {
  readonly totalMs: number;
  /** Until the first part of the answer. */
  readonly answeredMs: number;
  readonly outputTokens: number;
}

const WINDOW_MS = 10_000;
const MIN_OUTCOMES = 10;
const FAILURE_RATIO = 0.5;
const OPEN_MS = 5_000;
const MAX_OPEN_MS = 60_000;
const RETRY_RATIO = 0.2;
const MIN_RETRIES = 3;
const LATEST_WEIGHT = 0.2;

export function newEndpoint(): EndpointState {
  return {
    windowStartMs: 0,
    calls: 0,
    outcomes: 0,
    failures: 0,
    retries: 0,
    openUntilMs: 0,
    isProbing: false,
    running: 0,
    latencyMs: 0,
    answeredMs: 0,
    tokensPerSecond: 0,
  };
}

export type Circuit = "closed" | "open" | "half-open";

export function circuit(state: EndpointState, nowMs: number): Circuit {
  if (state.openUntilMs === 0) return "closed";
  return isWaiting(state, nowMs) || state.isProbing ? "open" : "half-open";
}

export function begin(state: EndpointState, nowMs: number): void {
  rollWindow(state, nowMs);
  if (circuit(state, nowMs) === "half-open") state.isProbing = true;
  state.calls++;
  state.running++;
}

/** A call has succeeded. */
export function succeed(
  state: EndpointState,
  { totalMs, answeredMs, outputTokens }: CallMeasures,
  nowMs: number,
): void {
  endCall(state, nowMs);
  state.outcomes++;
  state.latencyMs = smoothed(state.latencyMs, totalMs);
  state.answeredMs = smoothed(state.answeredMs, answeredMs);
  if (outputTokens > 0 && totalMs > 0) {
    state.tokensPerSecond = smoothed(state.tokensPerSecond, (outputTokens * 1_000) / totalMs);
  }
  if (isWaiting(state, nowMs)) return;
  state.openUntilMs = 0;
  state.isProbing = false;
}

/** A call has failed; `retryAfterMs` where the provider said how long to wait. */
export function fail(state: EndpointState, retryAfterMs: number | undefined, nowMs: number): void {
  endCall(state, nowMs);
  state.outcomes++;
  state.failures++;
  state.isProbing = false;
  const openMs = openDuration(state, retryAfterMs, nowMs);
  if (openMs === 0) return;
  const waitedForMs = isWaiting(state, nowMs) ? state.openUntilMs : 0;
  state.openUntilMs = Math.max(waitedForMs, nowMs + openMs);
}

/** A call has ended for which the endpoint is not to blame: the caller's fault, or the caller went away. */
export function leave(state: EndpointState, nowMs: number): void {
  endCall(state, nowMs);
  state.isProbing = false;
}

function endCall(state: EndpointState, nowMs: number): void {
  rollWindow(state, nowMs);
  state.running = Math.max(0, state.running - 1);
}

/** Within the time that the circuit was opened for; a clock that was set back makes it no longer. */
function isWaiting({ openUntilMs }: EndpointState, nowMs: number): boolean {
  return nowMs < openUntilMs && openUntilMs - nowMs <= MAX_OPEN_MS;
}

function smoothed(before: number, latest: number): number {
  return before === 0 ? latest : before + LATEST_WEIGHT * (latest - before);
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

/** Whether one more retry is within the budget, which has counted it then. */
export function takeRetry(state: EndpointState, nowMs: number): boolean {
  rollWindow(state, nowMs);
  const budget = Math.max(MIN_RETRIES, Math.floor(state.calls * RETRY_RATIO));
  if (state.retries >= budget) return false;
  state.retries++;
  return true;
}

function rollWindow(state: EndpointState, nowMs: number): void {
  const ageMs = nowMs - state.windowStartMs;
  if (ageMs >= 0 && ageMs < WINDOW_MS) return;
  state.windowStartMs = nowMs;
  state.calls = 0;
  state.outcomes = 0;
  state.failures = 0;
  state.retries = 0;
}
