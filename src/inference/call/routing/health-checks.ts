import type { Database } from "../../../../db/client.ts";
import { noteHealthy, noteUnhealthy } from "../../../../db/queries/provider-health.ts";
import type { Clock } from "../../../lib/clock.ts";
import { endpointUnhealthy } from "../../../lib/events/endpoint-unhealthy.ts";
import { newId } from "../../../lib/ids.ts";
import { type Provider, ProviderFailure } from "../../../providers/interface.ts";

export interface HealthChecksDependencies {
  /** Servers of the operator's own, by id. */
  readonly providers: ReadonlyMap<string, Pick<Provider, "checkKey">>;
  readonly background: Database;
  readonly clock: Clock;
  /** 0: none is checked. */
  readonly intervalMs: number;
  /** Whether this instance reports for all of them; the others check for their own calls. */
  isReporter(): boolean;
  /** Called when a server answers after checks that failed. */
  onRecovered(providerId: string): void;
  onError(error: unknown): void;
}

/** A single lost packet or a restart within seconds takes no server out. */
const FAILURES_UNTIL_DOWN = 3;
/** Another instance that reported meanwhile may have noted something else, so the same is noted again in time. */
const NOTED_FOR_MS = 60_000;

/**
 * Asks self-hosted servers for their models from time to time. One that fails three times in a row is down:
 * this instance's calls try other endpoints before it, and one event for all instances reports it (spec 6.1).
 */
export class HealthChecks {
  readonly #dependencies: HealthChecksDependencies;
  /** In a row, by provider. */
  readonly #failures = new Map<string, number>();
  /** What this instance has noted last, and when, by provider. */
  readonly #noted = new Map<string, { readonly isHealthy: boolean; readonly atMs: number }>();
  #cancelNext: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: HealthChecksDependencies) {
    this.#dependencies = dependencies;
  }

  isDown(providerId: string): boolean {
    const failures = this.#failures.get(providerId);
    return failures !== undefined && failures >= FAILURES_UNTIL_DOWN;
  }

  /** Checks from time to time until it is stopped; for the first time once the interval has passed. */
  start(): void {
    const { providers, intervalMs } = this.#dependencies;
    if (intervalMs > 0 && providers.size > 0) this.#schedule();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelNext?.();
  }

  async #round(): Promise<void> {
    const { providers, onError } = this.#dependencies;
    await Promise.all([...providers].map(([id, provider]) => this.#check(id, provider))).catch(
      onError,
    );
    if (!this.#isStopped) this.#schedule();
  }

  #schedule(): void {
    const { clock, intervalMs } = this.#dependencies;
    this.#cancelNext = clock.after(intervalMs, () => void this.#round());
  }

  async #check(id: string, provider: Pick<Provider, "checkKey">): Promise<void> {
    const isHealthy = await answers(provider);
    if (this.#isStopped) return;
    if (isHealthy) {
      if (this.#failures.delete(id)) this.#dependencies.onRecovered(id);
    } else this.#failures.set(id, (this.#failures.get(id) ?? 0) + 1);
    if (!this.#dependencies.isReporter()) this.#noted.delete(id);
    else if (isHealthy || this.isDown(id)) await this.#note(id, isHealthy);
  }

  async #note(id: string, isHealthy: boolean): Promise<void> {
    const { background, clock } = this.#dependencies;
    const atMs = clock.nowMs();
    const last = this.#noted.get(id);
    const ageMs = atMs - (last?.atMs ?? 0);
    if (last?.isHealthy === isHealthy && ageMs >= 0 && ageMs < NOTED_FOR_MS) return;
    if (isHealthy) await noteHealthy(background, id);
    else {
      const { type } = endpointUnhealthy;
      await noteUnhealthy(background, id, type, (organizationId) =>
        endpointUnhealthy.build(newId("evt"), organizationId, { endpoint: id, provider: id }),
      );
    }
    this.#noted.set(id, { isHealthy, atMs });
  }
}

/** A server that refuses the key, or the list, answers. */
async function answers({ checkKey }: Pick<Provider, "checkKey">): Promise<boolean> {
  try {
    await checkKey?.();
    return true;
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    return error.kind !== "unavailable" && error.kind !== "timeout";
  }
}
