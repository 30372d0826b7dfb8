import type { Database } from "../../db/client.ts";
import { removeOldChanges } from "../../db/queries/changes.ts";
import { removeOldCommitMarks } from "../../db/queries/commit-marks.ts";
import { removeOldIdempotencyRecords } from "../../db/queries/idempotency.ts";
import { removeDeadInstances } from "../../db/queries/instances.ts";
import type { Clock } from "../lib/clock.ts";

export interface CleaningDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  /** Further tasks, each bounded by itself. */
  readonly tasks: readonly (() => Promise<void>)[];
  /** True on one instance of several. */
  isOurTurn(): boolean;
  onError(error: unknown): void;
}

const CLEANING_MS = 60_000;
/** Batches of one kind in one clean-up; what is left is for the next one. */
const MAX_ROUNDS = 1_000;

/** Removes expired rows in bounded batches, on one instance at a time. */
export class Cleaning {
  readonly #dependencies: CleaningDependencies;
  #cancel: (() => void) | undefined;

  constructor(dependencies: CleaningDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    this.#cancel = this.#dependencies.clock.after(CLEANING_MS, async () => {
      if (this.#dependencies.isOurTurn()) await this.#clean().catch(this.#dependencies.onError);
      if (this.#cancel !== undefined) this.start();
    });
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  async #clean(): Promise<void> {
    const { sql } = this.#dependencies;
    for (const remove of [removeOldChanges, removeOldCommitMarks, removeOldIdempotencyRecords]) {
      for (let round = 0; round < MAX_ROUNDS && this.#cancel !== undefined; round++) {
        if (!(await remove(sql))) break;
      }
    }
    await removeDeadInstances(sql);
    for (const task of this.#dependencies.tasks) await task();
  }
}
