import type { RateDecision, RateWindows } from "../cluster/interface.ts";
import { GatewayError } from "../lib/errors.ts";

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
