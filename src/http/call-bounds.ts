import { GatewayError, overloaded } from "../lib/errors.ts";
import { allButOne, FairSemaphore, SharedRoom } from "../lib/fair-share.ts";
import type { RateDecision, RateWindows } from "../platform/cluster/interface.ts";

interface LoadGateDependencies {
  /** Returns the sustained lag of this process in milliseconds. */
  lagMs(): number;
}

/** Model calls in progress. Each needs memory for its bodies and a connection to a provider. */
export const MAX_IN_FLIGHT = 10_000;
/**
 * Lag in milliseconds from which the gateway rejects calls of organizations that already have an
 * equal share. A fast rejection lets the client go elsewhere and keeps the running calls fast.
 */
export const MAX_LAG_MS = 200;

/**
 * Rejects model calls if more of them would slow down all calls. Rejects calls of the busiest
 * organizations first.
 */
export class LoadGate {
  readonly #dependencies: LoadGateDependencies;
  readonly #calls = new SharedRoom(MAX_IN_FLIGHT);

  constructor(dependencies: LoadGateDependencies) {
    this.#dependencies = dependencies;
  }

  /** Admits a call, which must be ended with `end`. Throws 503 if the gateway is overloaded. */
  begin(organizationId: string): void {
    const isLate = this.#dependencies.lagMs() >= MAX_LAG_MS;
    const isAdmitted =
      !(isLate && this.#hasEqualShare(organizationId)) && this.#calls.tryTake(organizationId);
    if (!isAdmitted) throw overloaded("The gateway is overloaded. Try again shortly.");
  }

  end(organizationId: string): void {
    this.#calls.free(organizationId);
  }

  /**
   * Returns true if another call would give the organization more than an equal share of the
   * running calls.
   */
  #hasEqualShare(organizationId: string): boolean {
    const { used: running, owners } = this.#calls;
    const held = this.#calls.heldBy(organizationId);
    return (held + 1) * (held === 0 ? owners + 1 : owners) > running;
  }
}

const MAX_WAITING_READS = 2_048;
/** Milliseconds that a read waits at most for its turn. */
const MAX_READ_WAIT_MS = 10_000;

/**
 * Returns the semaphore for administrative reads (lists and usage figures), which can use a
 * database connection for seconds. One organization gets at most half of the connections.
 */
export function createReadSemaphore(connections: number): FairSemaphore {
  return new FairSemaphore({
    most: allButOne(connections),
    mostOfOne: Math.max(1, Math.floor(connections / 2)),
    maxWaiting: MAX_WAITING_READS,
    maxWaitMs: MAX_READ_WAIT_MS,
    refusal: () => overloaded("Too many lists and figures are being read. Try again shortly."),
  });
}

/** Administrative calls of one organization in any 60 s, over all instances. */
const ADMINISTRATIVE_CALLS_A_MINUTE = 600;

/** Limits the administrative calls of each organization. Model calls do not count. */
export class AdministrativeRate {
  readonly #rates: RateWindows;

  constructor(rates: RateWindows) {
    this.#rates = rates;
  }

  /** Counts a call. Throws 429 if the organization has reached the limit. */
  count(organizationId: string): void | Promise<void> {
    const decision = this.#rates.take(
      `administration ${organizationId}`,
      ADMINISTRATIVE_CALLS_A_MINUTE,
    );
    return decision instanceof Promise ? decision.then(assertAdmitted) : assertAdmitted(decision);
  }
}

function assertAdmitted(decision: RateDecision): void {
  if (decision.isAdmitted) return;
  throw new GatewayError(
    "rate_limit_exceeded",
    `The organization is limited to ${decision.limit} administrative calls a minute.`,
    { retryAfterSeconds: decision.retryAfterMs / 1_000 },
  );
}
