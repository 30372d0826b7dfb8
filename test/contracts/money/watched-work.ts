import { GroupCommit, type GroupCommitDependencies } from "../../../db/ledger/group-commit.ts";
import type { Unit } from "../../../db/ledger/units.ts";

/** Says whether something is being read or written, so that virtual time can wait for it. */
export class WatchedWork {
  #running = 0;

  get isBusy(): boolean {
    return this.#running > 0;
  }

  /** Rejects as the work does. */
  async during<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#running++;
    try {
      return await work();
    } finally {
      this.#running--;
    }
  }
}

/** A ledger all of whose writing is watched, a refund's too, which is no batch of charges. */
export class WatchedLedger extends GroupCommit {
  readonly #work: WatchedWork;

  constructor(dependencies: GroupCommitDependencies, work: WatchedWork) {
    super(dependencies);
    this.#work = work;
  }

  override post(unit: Unit): void {
    void this.#work.during(
      () => new Promise<void>((ended) => super.post(new WatchedUnit(unit, ended))),
    );
  }
}

class WatchedUnit implements Unit {
  readonly abandonment: Unit["abandonment"];
  readonly checkpoints: Unit["checkpoints"];
  readonly settlements: Unit["settlements"];
  readonly releases: Unit["releases"];
  readonly statements: Unit["statements"];
  readonly #unit: Unit;
  readonly #ended: () => void;

  constructor(unit: Unit, ended: () => void) {
    this.abandonment = unit.abandonment;
    this.checkpoints = unit.checkpoints;
    this.settlements = unit.settlements;
    this.releases = unit.releases;
    this.statements = unit.statements;
    this.#unit = unit;
    this.#ended = ended;
  }

  resolve(): void {
    this.#unit.resolve();
    this.#ended();
  }

  reject(error: unknown): void {
    this.#unit.reject(error);
    this.#ended();
  }
}
