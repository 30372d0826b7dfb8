import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import type { DeadSettled } from "../../db/ledger/settle-dead.ts";
import { buryPastLease } from "../../db/queries/instances.ts";
import { settleOrphanedWork } from "./orphaned-work.ts";

export interface ReaperDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  /** Instances were declared dead: what they owned is free. */
  onBuried(ids: readonly string[]): void;
  /** Attempts and holds of dead instances were settled or released. */
  onSettled(estate: DeadSettled): void;
  onError(error: unknown): void;
}

/**
 * Declares silent instances dead and finishes what they left. Any number of instances may do so at once,
 * and any of them may die of it: burials pass over what another has locked, settling counts each request
 * once, and an estate is noted as settled only when nothing is left of it.
 */
export class Reaper {
  readonly #dependencies: ReaperDependencies;
  #running: Promise<void> | undefined;

  constructor(dependencies: ReaperDependencies) {
    this.#dependencies = dependencies;
  }

  /** Begins unless it is at work. Never throws. */
  reap(): void {
    this.#running ??= this.#reap()
      .catch(this.#dependencies.onError)
      .finally(() => {
        this.#running = undefined;
      });
  }

  /** Resolves when nothing is under way. */
  async close(): Promise<void> {
    await this.#running;
  }

  async #reap(): Promise<void> {
    const { sql, instance, onBuried, onSettled } = this.#dependencies;
    const buried = await buryPastLease(sql, instance);
    if (buried.length > 0) onBuried(buried);
    onSettled(await settleOrphanedWork(sql, instance));
  }
}
