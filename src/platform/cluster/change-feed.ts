import type { Database } from "../../../db/client.ts";
import { CHANGES_CHANNEL, type Change, recentChanges } from "../../../db/queries/changes.ts";

export interface ChangeFeedDependencies {
  readonly sql: Database;
  /** An object changed in another process, or in this one. */
  onChange(kind: string, objectId: string): void;
  /** News may have been missed: nothing in memory can be trusted. */
  onGap(): void;
}

const MAX_SEEN_CHANGES = 10_000;

/** What changed in other processes: by notification at once, and by a look at the table in any case. */
export class ChangeFeed {
  readonly #dependencies: ChangeFeedDependencies;
  readonly #seen = new Set<bigint>();
  #stopListening: (() => Promise<void>) | undefined;

  constructor(dependencies: ChangeFeedDependencies) {
    this.#dependencies = dependencies;
  }

  /** Does not wait for the connection that listens: until it stands, changes come with the heartbeats. */
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
      // The driver tries again.
      .catch(() => {});
  }

  async stop(): Promise<void> {
    await this.#stopListening?.().catch(() => {});
  }

  recent(): Promise<Change[]> {
    return recentChanges(this.#dependencies.sql);
  }

  tell(changes: readonly Change[]): void {
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
