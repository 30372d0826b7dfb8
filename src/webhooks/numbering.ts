import { type Database, isServerUnable } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import { numberEvents } from "../../db/queries/outbox.ts";
import type { Clock } from "../lib/clock.ts";
import { doneInTime } from "../lib/done-in-time.ts";

export interface NumberingDependencies {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  /**
   * Webhooks got deliveries, each with the live instance that acts for it, or null. Must not throw. Called
   * for each turn, so that what was numbered is sent while the rest is still being numbered.
   */
  onNumbered(webhooks: ReadonlyMap<string, string | null>): void;
  onError(error: unknown): void;
}

/** Finds what no call notified: an event that another instance wrote and did not number. */
const LOOK_INTERVAL_MS = 1_000;
/** Calls that come closer together than this share one look. */
const MIN_LOOK_INTERVAL_MS = 20;
/** Organizations that are served by one statement, and the rows that it writes at most, shared out among them. */
const MAX_ORGANIZATIONS = 64;
const MAX_ROWS = 512;
const MIN_ROWS = 32;

/**
 * Numbers events: deals them out to the webhooks that want them, in turns of bounded size that go round
 * the organizations, so that however many events one of them has, the others' wait for no more than
 * one turn of it. Any instance may do it at any time; the database lets one at a time number for an
 * organization.
 */
export class Numbering {
  readonly #dependencies: NumberingDependencies;
  #running: Promise<void> | undefined;
  #isDue = false;
  #isStopped = false;
  #maxRows = MAX_ROWS;
  #cancel: (() => void) | undefined;
  #endPause: (() => void) | undefined;

  constructor(dependencies: NumberingDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    if (this.#isStopped) return;
    this.#cancel?.();
    this.nudge();
    this.#cancel = this.#dependencies.clock.after(LOOK_INTERVAL_MS, () => this.start());
  }

  /** Events were, or may have been, emitted: numbers soon. */
  nudge(): void {
    if (this.#isStopped) return;
    this.#isDue = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      // What came after its last look, before this.
      if (this.#isDue) this.nudge();
    });
  }

  /** Begins no further turn, and waits for the one that is under way. */
  async stop(withinMs: number): Promise<void> {
    this.#isStopped = true;
    this.#isDue = false;
    this.#cancel?.();
    this.#endPause?.();
    if (this.#running) await doneInTime(this.#running, this.#dependencies.clock, withinMs);
  }

  async #run(): Promise<void> {
    const { onError } = this.#dependencies;
    while (this.#isDue && !this.#isStopped) {
      await this.#pause();
      this.#isDue = false;
      try {
        while (!this.#isStopped && (await this.#goRound())) {}
      } catch (error) {
        // The next look tries again.
        if (!this.#isStopped) onError(error);
      }
    }
  }

  /** Ends early when numbering stops. */
  async #pause(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = this.#dependencies.clock.after(MIN_LOOK_INTERVAL_MS, resolve);
    this.#endPause = resolve;
    await promise;
    this.#endPause = undefined;
    cancel();
  }

  /** Serves each organization with events once. True where one of them has more. */
  async #goRound(): Promise<boolean> {
    let isMore = false;
    let after: string | undefined = "";
    while (after !== undefined && !this.#isStopped) {
      const turn = await this.#turn(after);
      if (turn.webhooks.size > 0) this.#dependencies.onNumbered(turn.webhooks);
      isMore ||= turn.isMore;
      after = turn.last;
    }
    return isMore;
  }

  async #turn(after: string) {
    const { sql, instance } = this.#dependencies;
    const bounds = { maxOrganizations: MAX_ORGANIZATIONS, maxRows: this.#maxRows };
    try {
      const turn = await numberEvents(sql, instance, after, bounds);
      this.#maxRows = Math.min(MAX_ROWS, this.#maxRows * 2);
      return turn;
    } catch (error) {
      // Ended for taking too long: a database that is slow gets done with less.
      if (isServerUnable(error)) this.#maxRows = Math.max(MIN_ROWS, this.#maxRows / 2);
      throw error;
    }
  }
}
