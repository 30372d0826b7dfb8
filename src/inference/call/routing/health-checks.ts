import type { Database } from "../../../../db/client.ts";
import { noteHealthy, noteUnhealthy } from "../../../../db/queries/provider-health.ts";
import type { Clock } from "../../../lib/clock.ts";
import { endpointUnhealthy } from "../../../lib/events/endpoint-unhealthy.ts";
import { newId } from "../../../lib/ids.ts";
import { type Provider, ProviderFailure } from "../../../providers/interface.ts";

export interface HealthChecksDependencies {
  /** Returns the providers to check, by id: the operator's self-hosted servers. */
  providers(): ReadonlyMap<string, Pick<Provider, "checkKey">>;
  readonly background: Database;
  readonly clock: Clock;
  /** Milliseconds between the checks of a server. 0 disables checks. */
  readonly intervalMs: number;
  /** Returns true if this instance reports for all instances. The others check only for their own calls. */
  isReporter(): boolean;
  /** Called when a server answers after failed checks. */
  onRecovered(providerId: string): void;
  onError(error: unknown): void;
}

/**
 * Failed checks in a row until a server is down. A lost packet or a restart within seconds does not reach it.
 */
const FAILURES_UNTIL_DOWN = 3;
/**
 * A state is written again after this time, because another instance can have written a different state in
 * the meantime.
 */
const NOTED_FOR_MS = 60_000;

/**
 * Checks self-hosted servers periodically by listing their models. A server that fails three times in a row
 * is down. Calls of this instance then try other endpoints before it, and one event for all instances reports
 * it (spec 6.1).
 */
export class HealthChecks {
  readonly #dependencies: HealthChecksDependencies;
  /** Failed checks in a row, by provider. */
  readonly #failures = new Map<string, number>();
  /** The last state that this instance wrote and its time, by provider. */
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

  /** Starts periodic checks. The first check runs after one interval. */
  start(): void {
    if (this.#dependencies.intervalMs > 0) this.#schedule();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelNext?.();
  }

  async #round(): Promise<void> {
    const { onError } = this.#dependencies;
    const providers = this.#dependencies.providers();
    for (const id of this.#failures.keys()) if (!providers.has(id)) this.#failures.delete(id);
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

/** Returns true if the server answers. A server that rejects the key or the request counts as answering. */
async function answers({ checkKey }: Pick<Provider, "checkKey">): Promise<boolean> {
  try {
    await checkKey?.();
    return true;
  } catch (error) {
    if (!(error instanceof ProviderFailure)) throw error;
    return error.kind !== "unavailable" && error.kind !== "timeout";
  }
}
