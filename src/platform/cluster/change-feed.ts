import type { Database } from "../../../db/client.ts";
import { CHANGES_CHANNEL, type Change, recentChanges } from "../../../db/queries/changes.ts";

export interface ChangeFeedDependencies {
  readonly sql: Database;
  /** Called when an object has changed, in this process or another one. */
  onChange(kind: string, objectId: string): void;
  /** Called when changes may have been missed, so that everything in memory can be outdated. */
  onGap(): void;
}

const MAX_SEEN_CHANGES = 10_000;

/**
 * Reports changes of all processes. A notification reports a change immediately. The heartbeats
 * also read the table of changes, in case a notification is lost.
 */
export class ChangeFeed {
  readonly #dependencies: ChangeFeedDependencies;
  readonly #seen = new Set<bigint>();
  #stopListening: (() => Promise<void>) | undefined;

  constructor(dependencies: ChangeFeedDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Starts to listen without waiting for the connection. Until it is open, the heartbeats report
   * the changes.
   */
  start(): void {
    const { sql, onGap } = this.#dependencies;
    sql
      .listen(
        CHANGES_CHANNEL,
        (payload) => this.#notice(payload),
        () => onGap(),
      )
      .then(({ unlisten }) => {
        this.#stopListening = unlisten;
      })
      // The driver retries.
      .catch(() => {});
  }

  async stop(): Promise<void> {
    await this.#stopListening?.().catch(() => {});
  }

  recent(): Promise<Change[]> {
    return recentChanges(this.#dependencies.sql);
  }

  report(changes: readonly Change[]): void {
    for (const change of changes) {
      if (this.#seen.has(change.id)) continue;
      this.#seen.add(change.id);
      this.#dependencies.onChange(change.kind, change.objectId);
    }
    for (const id of this.#seen) {
      if (this.#seen.size <= MAX_SEEN_CHANGES) return;
      this.#seen.delete(id);
    }
  }

  #notice(payload: string): void {
    const space = payload.indexOf(" ");
    if (space > 0) this.#dependencies.onChange(payload.slice(0, space), payload.slice(space + 1));
  }
}
