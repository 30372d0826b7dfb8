import type { Database } from "../../../db/client.ts";
import {
  CHANGES_CHANNEL,
  type Change,
  type ChangeKind,
  recentChanges,
} from "../../../db/queries/changes.ts";

export interface ChangeFeedDependencies {
  readonly sql: Database;
  /** Called once for each kind that no part subscribes to. A later version of the gateway sends it. */
  onUnknownKind(kind: string): void;
}

/** State in memory that is read from the database again after `forget`. */
interface Invalidatable {
  forget(objectId: string): void;
  forgetAll(): void;
}

const MAX_SEEN_CHANGES = 10_000;
const MAX_UNKNOWN_KINDS = 100;

/**
 * Reports changes of all processes to the parts that subscribe to their kinds. A notification
 * reports a change immediately. The heartbeats also read the table of changes, in case a
 * notification is lost.
 */
export class ChangeFeed {
  readonly #dependencies: ChangeFeedDependencies;
  readonly #listeners = new Map<string, ((objectId: string) => void)[]>();
  readonly #gapListeners: (() => void)[] = [];
  readonly #unknownKinds = new Set<string>();
  readonly #seen = new Set<bigint>();
  #stopListening: (() => Promise<void>) | undefined;

  constructor(dependencies: ChangeFeedDependencies) {
    this.#dependencies = dependencies;
  }

  /** Subscribes to changes of a kind, in this process or another one. Call it before `start`. */
  on(kind: ChangeKind, listener: (objectId: string) => void): void {
    const listeners = this.#listeners.get(kind) ?? [];
    listeners.push(listener);
    this.#listeners.set(kind, listeners);
  }

  /**
   * Subscribes to gaps: changes may have been missed, so everything in memory can be outdated. Call
   * it before `start`.
   */
  onGap(listener: () => void): void {
    this.#gapListeners.push(listener);
  }

  /** Makes a part forget each object that changes, and all objects after a gap. */
  invalidate(kind: ChangeKind, part: Invalidatable): void {
    this.on(kind, (objectId) => part.forget(objectId));
    this.onGap(() => part.forgetAll());
  }

  /**
   * Starts to listen without waiting for the connection. Until it is open, the heartbeats report
   * the changes.
   */
  start(): void {
    this.#dependencies.sql
      .listen(
        CHANGES_CHANNEL,
        (payload) => this.#notice(payload),
        () => this.reportGap(),
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

  /** Reads the changes of the last seconds. */
  recent(): Promise<Change[]> {
    return recentChanges(this.#dependencies.sql);
  }

  /** Reports changes that were read. Skips those that it has reported before. */
  report(changes: readonly Change[]): void {
    for (const change of changes) {
      if (this.#seen.has(change.id)) continue;
      this.#seen.add(change.id);
      this.#reportOne(change.kind, change.objectId);
    }
    for (const id of this.#seen) {
      if (this.#seen.size <= MAX_SEEN_CHANGES) return;
      this.#seen.delete(id);
    }
  }

  reportGap(): void {
    for (const listener of this.#gapListeners) listener();
  }

  #notice(payload: string): void {
    const space = payload.indexOf(" ");
    if (space > 0) this.#reportOne(payload.slice(0, space), payload.slice(space + 1));
  }

  #reportOne(kind: string, objectId: string): void {
    const listeners = this.#listeners.get(kind);
    if (listeners !== undefined) {
      for (const listener of listeners) listener(objectId);
    } else if (!this.#unknownKinds.has(kind) && this.#unknownKinds.size < MAX_UNKNOWN_KINDS) {
      this.#unknownKinds.add(kind);
      this.#dependencies.onUnknownKind(kind);
    }
  }
}
