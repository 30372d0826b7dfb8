import type { Database, DatabaseTransaction } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { guardLease, type Lease, LeaseLostError, type Ownership } from "./ownership.ts";

/** The work on one object while this instance owns it. */
export class OwnedRun {
  readonly lease: Lease;
  /** Organization of the object, when it is known. */
  organizationId: string | undefined;
  /** Resolves when the work has ended and the lease is released. */
  over: Promise<void> = Promise.resolve();
  readonly #abandoned = new AbortController();

  constructor(lease: Lease) {
    this.lease = lease;
  }

  /**
   * Aborts if this instance no longer owns the object, or stops. The object keeps its state for the next owner.
   */
  get abandoned(): AbortSignal {
    return this.#abandoned.signal;
  }

  abandon(): void {
    this.#abandoned.abort();
  }
}

export interface OwnedWork<Run extends OwnedRun> {
  /** Kind of the leases. */
  readonly kind: string;
  begin(lease: Lease, organizationId?: string): Run;
  /**
   * Works on the object. Resolves when there is no work left for now. Errors of an abandoned run are not
   * reported.
   */
  work(run: Run): Promise<void>;
  /** Called after `work`, whether it succeeded or failed, and before the lease is released. */
  close?(run: Run): void;
  /** Called when the lease of an ended run is released and another run can start. */
  onRoom?(ended: Run): void;
}

interface OwnedRunsDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  onError(error: unknown): void;
}

/**
 * The objects of one kind that this instance works on. It has one run per lease, from the claim until the lease
 * is released or lost, or this instance stops.
 */
export class OwnedRuns<Run extends OwnedRun> {
  readonly #dependencies: OwnedRunsDependencies;
  readonly #owned: OwnedWork<Run>;
  readonly #runs = new Map<string, Run>();
  #isStopped = false;

  constructor(dependencies: OwnedRunsDependencies, owned: OwnedWork<Run>) {
    this.#dependencies = dependencies;
    this.#owned = owned;
    dependencies.ownership.onLost((lease) => {
      if (lease.kind === owned.kind) this.get(lease.id)?.abandon();
    });
  }

  get size(): number {
    return this.#runs.size;
  }

  get(id: string): Run | undefined {
    return this.#runs.get(id);
  }

  all(): Iterable<Run> {
    return this.#runs.values();
  }

  /** Returns the number of runs of each organization. */
  countsByOrganization(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { organizationId } of this.#runs.values()) {
      if (organizationId !== undefined)
        counts.set(organizationId, (counts.get(organizationId) ?? 0) + 1);
    }
    return counts;
  }

  /** Returns organizations with at least this number of runs here. */
  organizationsWith(least: number): string[] {
    return [...this.countsByOrganization()].filter(([, runs]) => runs >= least).map(([id]) => id);
  }

  /** Starts a run, as `OwnedKind.start` requires. */
  start(lease: Lease, organizationId?: string): void {
    const { ownership, onError } = this.#dependencies;
    const earlier = this.get(lease.id);
    if (earlier !== undefined) {
      // The earlier run's lease was released or lost, but the run has not ended yet.
      void earlier.over.then(() => this.start(lease, organizationId));
      return;
    }
    if (this.#isStopped) {
      ownership.release([lease]).catch(onError);
      return;
    }
    const run = this.#owned.begin(lease, organizationId);
    this.#runs.set(lease.id, run);
    run.over = this.#run(run)
      .catch(onError)
      .finally(() => {
        this.#runs.delete(lease.id);
        if (!this.#isStopped) this.#owned.onRoom?.(run);
      });
  }

  /** Abandons all runs and resolves when they have ended. The objects keep their state for the next owner. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    const runs = [...this.#runs.values()];
    for (const run of runs) run.abandon();
    await Promise.all(runs.map((run) => run.over));
  }

  /**
   * Runs a transaction as the owner. Rejects with LeaseLostError if this instance no longer owns the actor, and
   * rejects if the run was abandoned.
   */
  guarded<Result>(run: Run, write: (sql: DatabaseTransaction) => Promise<Result>): Promise<Result> {
    run.abandoned.throwIfAborted();
    const { sql, instance } = this.#dependencies;
    return sql.begin(async (transaction) => {
      await guardLease(transaction, run.lease, instance);
      return write(transaction);
    }) as Promise<Result>;
  }

  async #run(run: Run): Promise<void> {
    const { ownership } = this.#dependencies;
    try {
      await this.#owned.work(run);
    } catch (error) {
      if (error instanceof LeaseLostError) ownership.noteLost(run.lease);
      else if (!run.abandoned.aborted) throw error;
    } finally {
      this.#owned.close?.(run);
      await ownership.release([run.lease]);
    }
  }
}
