import type { Database } from "../../db/client.ts";
import { type HighErrorRate, sampleErrorRates } from "../../db/queries/error-rates.ts";
import type { Clock } from "../lib/clock.ts";
import { requestsErrorRate } from "../lib/events/requests-error-rate.ts";
import { newId } from "../lib/ids.ts";
import { isoTime } from "../lib/utc-time.ts";

interface ErrorRateWatchDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** Returns true on one of several instances, because one instance is enough. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

/** Time between two looks. An organization is judged five minutes after its last sample. */
const LOOK_MS = 60_000;

/** Judges the error rates of organizations, and reports those that have become high. */
export class ErrorRateWatch {
  readonly #dependencies: ErrorRateWatchDependencies;
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: ErrorRateWatchDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    const { clock, isOurTurn, onError } = this.#dependencies;
    this.#cancel = clock.after(LOOK_MS, async () => {
      if (isOurTurn()) await this.look().catch((error) => this.#isStopped || onError(error));
      if (!this.#isStopped) this.start();
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  async look(): Promise<void> {
    let after: string | undefined = "";
    while (after !== undefined && !this.#isStopped) {
      after = await sampleErrorRates(this.#dependencies.sql, after, eventOf);
    }
  }
}

function eventOf({ organizationId, requests, errors, sinceMs, untilMs }: HighErrorRate) {
  return requestsErrorRate.build(newId("evt"), organizationId, {
    ...{ requests, errors },
    error_percent: Math.round((errors / requests) * 100),
    period_start: isoTime(sinceMs),
    period_end: isoTime(untilMs),
  });
}
