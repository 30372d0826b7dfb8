import type { Database } from "../../../db/client.ts";
import { eventsAfter, type JobEvent } from "../../../db/queries/fine-tuning-events.ts";
import { findJob } from "../../../db/queries/fine-tuning-jobs.ts";
import type { Clock } from "../../lib/clock.ts";
import { ChangeListeners } from "../../lib/ears.ts";
import { overloaded } from "../../lib/errors.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import { isFinal } from "../../lib/fine-tuning-job.ts";

/** What a feed gives: events, or a sign that it is alive, and at last that the job has ended. */
export type FeedItem =
  | { readonly kind: "event"; readonly event: JobEvent }
  | { readonly kind: "quiet" }
  | { readonly kind: "done" };

/** Who follows a job. */
export interface Follower {
  /** Aborted when the client goes. */
  readonly signal: AbortSignal;
  /** Rejects where the key that began it may not read the job any more. */
  assertAllowed(): Promise<unknown>;
}

export interface FeedDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keepaliveMs: number;
  onError(error: unknown): void;
}

/** Feeds of this process at a time: their clients need not read what is sent to them. */
const MAX_FEEDS = 500;
/** One organization cannot take all of them. */
export const MAX_FEEDS_OF_ORGANIZATION = 250;
/** A feed that lasts longer ends; its client comes again, with the id of the last event. */
const MAX_FEED_MS = 3_600_000;
const PAGE = 100;

/** The events of jobs as they come, on every instance: `notice` reports changes to followers. */
export class EventFeeds {
  readonly #dependencies: FeedDependencies;
  readonly #ears = new ChangeListeners();
  readonly #stopped = new AbortController();
  readonly #slots = new SharedRoom(MAX_FEEDS, MAX_FEEDS_OF_ORGANIZATION);

  constructor(dependencies: FeedDependencies) {
    this.#dependencies = dependencies;
  }

  /** Something about the job has changed. */
  notice(jobId: string): void {
    this.#ears.notice(jobId);
  }

  noticeAll(): void {
    this.#ears.noticeAll();
  }

  /** Ends every feed. */
  stop(): void {
    this.#stopped.abort();
  }

  /**
   * Events behind number `after` until the job has ended, the client has gone or may read no more, or
   * something failed.
   * Never throws once it runs. Throws 503 where too many are open.
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
    const ear = this.#ears.open(jobId, signal);
    try {
      while (!signal.aborted && clock.nowMs() < endsAtMs) {
        // The job first: what it has told when it has ended is then all there is.
        const job = await findJob(sql, organizationId, jobId);
        if (job === undefined) return;
        const events = await eventsAfter(sql, jobId, sequence, PAGE);
        // Its client gets the reason when it reconnects.
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
        const isQuiet = await ear.listen(clock, this.#dependencies.keepaliveMs);
        if (isQuiet && !signal.aborted) yield { kind: "quiet" };
      }
    } catch (error) {
      // The stream ends short of its end, which its client resumes.
      if (!signal.aborted) onError(error);
    } finally {
      this.#slots.free(organizationId);
      ear.close();
    }
  }
}

function isAllowed(follower: Follower): Promise<boolean> {
  return follower.assertAllowed().then(
    () => true,
    () => false,
  );
}
