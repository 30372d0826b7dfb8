import { GatewayError, overloaded } from "../lib/errors.ts";
import { allButOne, FairSemaphore, SharedRoom } from "../lib/fair-share.ts";
import type { RateDecision, RateWindows } from "../platform/cluster/interface.ts";

interface LoadGateDependencies {
  /** Milliseconds by which this process is late with everything, for some time already. */
  lagMs(): number;
}

/** Calls of models that are being answered; each takes memory for its bodies and a connection to a provider. */
export const MAX_IN_FLIGHT = 10_000;
/** Beyond this, a client refused at once is served better elsewhere, and running requests faster here. */
export const MAX_LAG_MS = 200;

/** Rejects calls of models if more of them would make all of them slow, those of the busiest organizations first. */
export class LoadGate {
  readonly #dependencies: LoadGateDependencies;
  readonly #calls = new SharedRoom(MAX_IN_FLIGHT);

  constructor(dependencies: LoadGateDependencies) {
    this.#dependencies = dependencies;
  }

  /** Admits a call, to be ended with `end`. Throws 503. */
  begin(organizationId: string): void {
    const isLate = this.#dependencies.lagMs() >= MAX_LAG_MS;
    const isAdmitted =
      !(isLate && this.#hasEqualShare(organizationId)) && this.#calls.tryTake(organizationId);
    if (!isAdmitted) throw overloaded("The gateway has too much to do. Try again shortly.");
  }

  end(organizationId: string): void {
    this.#calls.free(organizationId);
  }

  /** Returns true if another call would give it more than an equal share of the calls that run. */
  #hasEqualShare(organizationId: string): boolean {
    const { taken, owners } = this.#calls;
    const held = this.#calls.heldBy(organizationId);
    return (held + 1) * (held === 0 ? owners + 1 : owners) > taken;
  }
}

const MAX_WAITING_READS = 2_048;
/** A read waits for others at most this long. */
const MAX_READ_WAIT_MS = 10_000;

/**
 * Bounds the administrative reads that run: lists, sums and figures, which can hold a connection to the database for
 * seconds. One organization gets half of the connections.
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

/** Of an organization in any 60 s, over all instances. */
const ADMINISTRATIVE_CALLS_A_MINUTE = 600;

/** Counts the administrative calls of each organization; calls of models are not among them. */
export class AdministrativeRate {
  readonly #rates: RateWindows;

  constructor(rates: RateWindows) {
    this.#rates = rates;
  }

  /** Throws 429. */
  count(organizationId: string): void | Promise<void> {
    const taken = this.#rates.take(
      `administration ${organizationId}`,
      ADMINISTRATIVE_CALLS_A_MINUTE,
    );
    return taken instanceof Promise ? taken.then(assertAdmitted) : assertAdmitted(taken);
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
