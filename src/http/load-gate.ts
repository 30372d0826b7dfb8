import { GatewayError } from "../lib/errors.ts";

export interface LoadGateDependencies {
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
