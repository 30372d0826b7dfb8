import type { RateDecision, RateWindows } from "../cluster/interface.ts";
import { GatewayError } from "../lib/errors.ts";

interface LoadGateDependencies {
  /** Requests that are being answered. */
  inFlight(): number;
  /** Milliseconds by which this process is late with everything, for some time already. */
  lagMs(): number;
}

/** Each takes memory for its bodies and a connection to a provider. */
export const MAX_IN_FLIGHT = 10_000;
/** Beyond this, a client refused at once is served better elsewhere, and running requests faster here. */
export const MAX_LAG_MS = 200;

/** Refuses calls of models where more of them would make all of them slow. Nothing else is refused. */
export class LoadGate {
  readonly #dependencies: LoadGateDependencies;

  constructor(dependencies: LoadGateDependencies) {
    this.#dependencies = dependencies;
  }

  /** Throws 503. */
  admit(): void {
    if (this.#dependencies.inFlight() <= MAX_IN_FLIGHT && this.#dependencies.lagMs() < MAX_LAG_MS) {
      return;
    }
    throw new GatewayError("overloaded", "The gateway has too much to do. Try again shortly.", {
      retryAfterSeconds: 1,
    });
  }
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
