import type { Database } from "../../../../db/client.ts";
import {
  type CircuitOpening,
  type KeyFailure,
  noteKeyFailures,
  noteOpenCircuits,
} from "../../../../db/queries/provider-health.ts";
import type { Clock } from "../../../lib/clock.ts";
import type { MeasuredEndpoint, ProviderHealth } from "./provider-health.ts";

interface HealthRecorderDependencies {
  readonly health: Pick<ProviderHealth, "measured">;
  readonly background: Database;
  readonly instanceId: string;
  readonly clock: Clock;
  onError(error: unknown): void;
}

/** Milliseconds between two looks. A circuit opens for at least five seconds. */
export const LOOK_MS = 2_000;

/**
 * Records open circuits, and the last failure of each key, of this instance for the operators' pages. Each instance
 * knows only its own calls, and forgets them when it stops. A quiet gateway writes nothing.
 */
export class HealthRecorder {
  readonly #dependencies: HealthRecorderDependencies;
  /** Recorded openings by endpoint. */
  readonly #openings = new Map<string, number>();
  /** Time of the recorded failure by provider and key, in milliseconds. */
  readonly #failures = new Map<string, number>();
  #cancel: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: HealthRecorderDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    this.#cancel = this.#dependencies.clock.after(LOOK_MS, () => void this.#round());
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel?.();
  }

  async #round(): Promise<void> {
    try {
      await this.record();
    } catch (error) {
      if (!this.#isStopped) this.#dependencies.onError(error);
    }
    if (!this.#isStopped) this.start();
  }

  /** Records the changes since the last call. */
  async record(): Promise<void> {
    const { health, background, instanceId } = this.#dependencies;
    const measured = health.measured();
    const open = measured.filter((one) => one.circuit !== "closed" || this.#newOpenings(one) > 0);
    if (open.length > 0) {
      const openings = open.map((one) => openingOf(one, this.#newOpenings(one)));
      await noteOpenCircuits(background, instanceId, openings);
    }
    const failures = this.#newFailures(measured);
    if (failures.length > 0) await noteKeyFailures(background, failures);
    // Remembered only after they are written, so that an outage of the database loses none.
    this.#openings.clear();
    for (const { endpointId, openings } of measured) this.#openings.set(endpointId, openings);
    for (const { providerId, keyPosition, failedAtMs } of failures) {
      this.#failures.set(`${providerId} ${keyPosition}`, failedAtMs);
    }
  }

  /** Returns the openings that are not recorded. The count of an endpoint that left the memory begins again. */
  #newOpenings({ endpointId, openings }: MeasuredEndpoint): number {
    const recorded = this.#openings.get(endpointId) ?? 0;
    return openings < recorded ? openings : openings - recorded;
  }

  /** Returns the latest failure of each key, if it is not recorded. */
  #newFailures(measured: readonly MeasuredEndpoint[]): KeyFailure[] {
    const latest = new Map<string, KeyFailure>();
    for (const { providerId, keyPosition, endpointId, lastFailure } of measured) {
      if (lastFailure === undefined) continue;
      const name = `${providerId} ${keyPosition}`;
      const { kind, status, atMs } = lastFailure;
      const recordedMs = latest.get(name)?.failedAtMs ?? this.#failures.get(name) ?? 0;
      if (atMs <= recordedMs) continue;
      latest.set(name, {
        ...{ providerId, keyPosition, endpointId, failedAtMs: atMs },
        ...{ failureKind: kind, failureStatus: status ?? null },
      });
    }
    return [...latest.values()];
  }
}

function openingOf(
  { providerId, endpointId, lastFailure }: MeasuredEndpoint,
  openings: number,
): CircuitOpening {
  return {
    ...{ endpointId, providerId, openings },
    failureKind: lastFailure?.kind ?? null,
    failureStatus: lastFailure?.status ?? null,
  };
}
