/**
 * The health of one endpoint: a provider and one of its models. Its circuit is
 *
 *   closed     calls are sent; the outcomes of the last ten seconds are counted
 *   open       calls skip the endpoint in favour of others until `openUntilMs`
 *   half-open  one call is sent as a probe; its outcome closes or opens the circuit again
 *
 * The circuit opens after at least 10 outcomes in the window with 50 % failures, or after a 429 that states a
 * wait. It becomes half-open after `openUntilMs`; the probe's outcome then closes or opens it. Calls that end
 * while it is open began earlier: they do not close it, but they can extend the wait.
 *
 * Retries have a budget: 20 % of the window's calls, and at least 3, so that a failing provider gets no extra
 * load.
 *
 * Each call changes the state twice, so it is changed in place. Only its actor refers to it.
 */
export interface EndpointState {
  windowStartMs: number;
  calls: number;
  /** Calls that succeeded or failed; running calls have no outcome yet. */
  outcomes: number;
  failures: number;
  retries: number;
  openUntilMs: number;
  isProbing: boolean;
  /** Number of times that the circuit has opened. */
  openings: number;
  /** Undefined until a call has failed. */
  lastFailure: EndpointFailure | undefined;
  running: number;
  /**
   * Exponentially weighted averages over successful calls: time to the end, and time to the start of the answer.
   */
  latencyMs: number;
  answeredMs: number;
  /** Exponentially weighted average over successful calls with output tokens; 0 before the first. */
  tokensPerSecond: number;
}

/** A failed call. */
export interface EndpointFailure {
  /** Kind of the failure, such as `rate_limited`. */
  readonly kind: string;
  /** Status of the provider's answer. Undefined if it sent none. */
  readonly status: number | undefined;
  readonly atMs: number;
}

/** The measurements of a successful call. */
export interface CallMeasures {
  readonly totalMs: number;
  /** Time until the first part of the answer. */
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
    openings: 0,
    lastFailure: undefined,
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

/** Records a successful call. */
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

/** Records a failed call. `retryAfterMs` is set if the provider stated a wait. */
export function fail(state: EndpointState, retryAfterMs: number | undefined, nowMs: number): void {
  endCall(state, nowMs);
  state.outcomes++;
  state.failures++;
  state.isProbing = false;
  const openMs = openDuration(state, retryAfterMs, nowMs);
  if (openMs === 0) return;
  const waitedForMs = isWaiting(state, nowMs) ? state.openUntilMs : 0;
  if (state.openUntilMs === 0) state.openings++;
  state.openUntilMs = Math.max(waitedForMs, nowMs + openMs);
}

/** Ends a call without an outcome: the caller made an error or disconnected, so the endpoint is not to blame. */
export function leave(state: EndpointState, nowMs: number): void {
  endCall(state, nowMs);
  state.isProbing = false;
}

function endCall(state: EndpointState, nowMs: number): void {
  rollWindow(state, nowMs);
  state.running = Math.max(0, state.running - 1);
}

/** Returns true during the wait of an open circuit. A clock that was set back does not extend the wait. */
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

/** Returns true if the budget allows another retry, and counts it. */
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
