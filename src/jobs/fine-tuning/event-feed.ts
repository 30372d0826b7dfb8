import type { Database } from "../../../db/client.ts";
import { eventsAfter, type JobEvent } from "../../../db/queries/fine-tuning-events.ts";
import { findJob } from "../../../db/queries/fine-tuning-jobs.ts";
import { ChangeListeners } from "../../lib/change-listeners.ts";
import type { Clock } from "../../lib/clock.ts";
import { overloaded } from "../../lib/errors.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import { isFinal } from "../../lib/fine-tuning-job.ts";

/** An item of a feed: an event, a keepalive, or the end of the job. */
export type FeedItem =
  | { readonly kind: "event"; readonly event: JobEvent }
  | { readonly kind: "quiet" }
  | { readonly kind: "done" };

/** A client that follows a job. */
export interface Follower {
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** Rejects if the key that opened the feed can no longer read the job. */
  assertAllowed(): Promise<unknown>;
}

export interface FeedDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keepaliveMs: number;
  onError(error: unknown): void;
}

/** Maximum feeds of this process at a time. Their clients can be slow to read. */
const MAX_FEEDS = 500;
/** Maximum feeds of one organization at a time. */
export const MAX_FEEDS_OF_ORGANIZATION = 250;
/** Maximum duration of a feed. Its client reconnects with the id of the last event. */
const MAX_FEED_MS = 3_600_000;
const PAGE = 100;

/** Streams the events of jobs on every instance. `notice` reports changes to followers. */
export class EventFeeds {
  readonly #dependencies: FeedDependencies;
  readonly #listeners = new ChangeListeners();
  readonly #stopped = new AbortController();
  readonly #slots = new SharedRoom(MAX_FEEDS, MAX_FEEDS_OF_ORGANIZATION);

  constructor(dependencies: FeedDependencies) {
    this.#dependencies = dependencies;
  }

  /** Reports a change of the job. */
  notice(jobId: string): void {
    this.#listeners.notice(jobId);
  }

  noticeAll(): void {
    this.#listeners.noticeAll();
  }

  /** Ends every feed. */
  stop(): void {
    this.#stopped.abort();
  }

  /**
   * Returns events after number `after`, until the job has ended, the client has disconnected or can no
   * longer read, or an error occurred. The iteration never throws. Throws 503 if too many feeds are open.
   */
  follow(
    organizationId: string,
    jobId: string,
    after: number,
    follower: Follower,
  ): AsyncIterable<FeedItem> {
    if (!this.#slots.tryTake(organizationId)) {
      throw overloaded("Too many event streams are open.", 5);
    }
    return this.#items(organizationId, jobId, after, follower);
  }

  async *#items(
    organizationId: string,
    jobId: string,
    after: number,
    follower: Follower,
  ): AsyncGenerator<FeedItem> {
    const { sql, clock, onError } = this.#dependencies;
    const signal = AbortSignal.any([follower.signal, this.#stopped.signal]);
    const endsAtMs = clock.nowMs() + MAX_FEED_MS;
    let sequence = after;
    const subscription = this.#listeners.open(jobId, signal);
    try {
      while (!signal.aborted && clock.nowMs() < endsAtMs) {
        // Read before the events. If the job has ended, the events are then complete.
        const job = await findJob(sql, organizationId, jobId);
        if (job === undefined) return;
        const events = await eventsAfter(sql, jobId, sequence, PAGE);
        // The client receives the reason when it reconnects.
        if (!(await isAllowed(follower))) return;
        for (const event of events) {
          sequence = event.sequence;
          yield { kind: "event", event };
        }
        if (events.length === PAGE) continue;
        if (isFinal(job.status) && sequence >= job.eventCount) {
          yield { kind: "done" };
          return;
        }
        const isQuiet = await subscription.listen(clock, this.#dependencies.keepaliveMs);
        if (isQuiet && !signal.aborted) yield { kind: "quiet" };
      }
    } catch (error) {
      // The stream ends without its end marker, so the client resumes it.
      if (!signal.aborted) onError(error);
    } finally {
      this.#slots.free(organizationId);
      subscription.close();
    }
  }
}

function isAllowed(follower: Follower): Promise<boolean> {
  return follower.assertAllowed().then(
    () => true,
    () => false,
  );
}
