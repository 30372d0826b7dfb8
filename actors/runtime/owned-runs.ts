import type { Database, DatabaseTransaction } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { guardLease, type Lease, LeaseLostError, type Ownership } from "./ownership.ts";

/** What is done for one object while this instance owns it. */
export class OwnedRun {
  readonly lease: Lease;
  /** Of the object, once it is known. */
  organizationId: string | undefined;
  /** Resolves when nothing is done any more, and the lease is given back. */
  over: Promise<void> = Promise.resolve();
  readonly #abandoned = new AbortController();

  constructor(lease: Lease) {
    this.lease = lease;
  }

  /** Aborts where this instance does not own the object any more, or stops: it is left where it stands. */
  get abandoned(): AbortSignal {
    return this.#abandoned.signal;
  }

  abandon(): void {
    this.#abandoned.abort();
  }
}

export interface OwnedWork<Run extends OwnedRun> {
  /** Of the leases. */
  readonly kind: string;
  begin(lease: Lease): Run;
  /** Resolves when there is nothing left to do now. An error of a run that was abandoned is not reported. */
  work(run: Run): Promise<void>;
  /** Behind `work`, however it has ended, before the lease is given back. */
  close?(run: Run): void;
  /** The lease is given back, so that there is room for another run. */
  onRoom?(): void;
}

interface OwnedRunsDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  onError(error: unknown): void;
}

/**
 * The objects of one kind that this instance works on: one run for each lease, from its claim until it is given back,
 * lost, or this instance stops.
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

  /** Organizations with at least so many runs here. */
  organizationsWith(least: number): string[] {
    const counts = new Map<string, number>();
    for (const { organizationId } of this.#runs.values()) {
      if (organizationId !== undefined)
        counts.set(organizationId, (counts.get(organizationId) ?? 0) + 1);
    }
    return [...counts].filter(([, runs]) => runs >= least).map(([id]) => id);
  }

  /** As that of an OwnedKind. */
  start(lease: Lease): void {
    const { ownership, onError } = this.#dependencies;
    const before = this.get(lease.id);
    if (before !== undefined) {
      // Its lease is given back already, or was lost, but it has not ended quite.
      void before.over.then(() => this.start(lease));
      return;
    }
    if (this.#isStopped) {
      ownership.release([lease]).catch(onError);
      return;
    }
    const run = this.#owned.begin(lease);
    this.#runs.set(lease.id, run);
    run.over = this.#run(run)
      .catch(onError)
      .finally(() => {
        this.#runs.delete(lease.id);
        if (!this.#isStopped) this.#owned.onRoom?.();
      });
  }

  /** Leaves every object where it stands, for its next owner; resolves when nothing is done for any. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    const runs = [...this.#runs.values()];
    for (const run of runs) run.abandon();
    await Promise.all(runs.map((run) => run.over));
  }

  /** A transaction of the owner. Rejects with LeaseLostError, and where the run was abandoned. */
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
