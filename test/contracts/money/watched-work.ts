import { GroupCommit, type GroupCommitDependencies } from "../../../db/ledger/group-commit.ts";

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

  override submit(...unit: Parameters<GroupCommit["submit"]>): Promise<void> {
    return this.#work.during(() => super.submit(...unit));
  }
}
