import { isRunning } from "../../../db/queries/background-responses.ts";
import { enqueueInPieces } from "../../lib/body-pieces.ts";
import type { Clock } from "../../lib/clock.ts";
import { overloaded } from "../../lib/errors.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import { DONE } from "../endpoints/responses/response-renderer.ts";
import type { BackgroundRuns } from "./background-runs.ts";
import type { BackgroundStore, EventPosition } from "./background-store.ts";
import { frameEnd } from "./event-log.ts";

/** A client that follows the events of a response. */
export interface EventFollower {
  readonly organizationId: string;
  /** Events up to this sequence number are skipped. */
  readonly startingAfter: number;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
  /** Rejects if the client's key can no longer read the response. */
  assertAllowed(): Promise<unknown>;
}

interface FollowingDependencies {
  readonly store: BackgroundStore;
  readonly runs: BackgroundRuns;
  readonly clock: Clock;
  readonly keepaliveMs: number;
  onError(error: unknown): void;
}

/**
 * Streams of this process that are open at the same time. Their number is limited because clients can stop
 * reading.
 */
const MAX_FOLLOWERS = 500;
/** Streams of one organization, so that it cannot use all of them. */
const MAX_FOLLOWERS_OF_ORGANIZATION = 250;
/** The longest duration of a stream. After it the client reconnects with the number of the last event. */
const MAX_FOLLOWING_MS = 3_600_000;
/** The interval for reading events of a response that runs on another instance. */
const POLL_MS = 250;
const KEEPALIVE = new TextEncoder().encode(": keepalive\n\n");
const END = new TextEncoder().encode(DONE);

/** Streams the events of background responses, with their sequence numbers, on every instance. */
export class EventFollowing {
  readonly #dependencies: FollowingDependencies;
  readonly #slots = new SharedRoom(MAX_FOLLOWERS, MAX_FOLLOWERS_OF_ORGANIZATION);
  readonly #draining = new AbortController();
  readonly #stopped = new AbortController();

  constructor(dependencies: FollowingDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Ends the streams of responses that run on other instances. Clients can follow these through other
   * instances. Streams of local responses end with their responses.
   */
  drain(): void {
    this.#draining.abort();
    this.#dependencies.runs.listeners.noticeAll();
  }

  /** Ends every stream. */
  stop(): void {
    this.#stopped.abort();
  }

  /**
   * Reserves capacity for a stream, which `open` uses or `free` releases. Throws 503 if too many streams are
   * open.
   */
  reserve(organizationId: string): { open: OpenEvents; free(): void } {
    if (!this.#slots.tryTake(organizationId)) {
      throw overloaded("Too many event streams are open.", 5);
    }
    const free = () => this.#slots.free(organizationId);
    return {
      free,
      open: (id, follower, onEnd) =>
        streamOf(this.#frames(id, follower), () => {
          free();
          onEnd();
        }),
    };
  }

  /** Yields whole frames and keepalives. Never throws. */
  async *#frames(id: string, follower: EventFollower): AsyncGenerator<Uint8Array> {
    const { store, runs, clock, keepaliveMs, onError } = this.#dependencies;
    const { organizationId, startingAfter } = follower;
    const signal = AbortSignal.any([follower.signal, this.#stopped.signal]);
    const endsAtMs = clock.nowMs() + MAX_FOLLOWING_MS;
    const subscription = runs.listeners.open(id, signal);
    try {
      const events = new EventReading(store, id, startingAfter);
      let quietMs = 0;
      while (!signal.aborted && clock.nowMs() < endsAtMs) {
        // The state is read before the events, so that after the end no later event is missed.
        const current = await store.find(organizationId, id);
        if (current === undefined || !(await isAllowed(follower))) return;
        const frames = await events.next();
        if (frames !== undefined) {
          quietMs = 0;
          if (frames.length > 0) yield frames;
          continue;
        }
        if (!isRunning(current.state)) {
          const json = await store.response(organizationId, id);
          const { type, frame } = lastEvent(json, current.lastSequence + 1);
          if (current.lastSequence + 1 > startingAfter) yield frame;
          if (type !== "response.failed") yield END;
          return;
        }
        const isLocal = runs.has(id);
        if (!isLocal && this.#draining.signal.aborted) return;
        const waitMs = isLocal ? keepaliveMs : Math.min(POLL_MS, keepaliveMs);
        quietMs = (await subscription.listen(clock, waitMs)) ? quietMs + waitMs : 0;
        if (quietMs < keepaliveMs || signal.aborted) continue;
        quietMs = 0;
        yield KEEPALIVE;
      }
    } catch (error) {
      // The stream ends early, and its client resumes it.
      if (!signal.aborted) onError(error);
    } finally {
      subscription.close();
    }
  }
}

/** Opens a stream of a response's events. `onEnd` is called once, at its end. */
type OpenEvents = (
  id: string,
  follower: EventFollower,
  onEnd: () => void,
) => ReadableStream<Uint8Array>;

function streamOf(
  frames: AsyncGenerator<Uint8Array>,
  onEnd: () => void,
): ReadableStream<Uint8Array> {
  let isOver = false;
  const end = () => {
    if (!isOver) onEnd();
    isOver = true;
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { value, done } = await frames.next();
        if (!done) return enqueueInPieces(controller, value);
        end();
        controller.close();
      },
      async cancel() {
        end();
        await frames.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

function isAllowed(follower: EventFollower): Promise<boolean> {
  return follower.assertAllowed().then(
    () => true,
    () => false,
  );
}

/**
 * Returns the last event of a response, which contains the response's state. No batch contains this event.
 */
function lastEvent(json: Uint8Array, sequence: number): { type: string; frame: Uint8Array } {
  // No text of a caller precedes the status.
  const [, status] = /"status":"(\w+)"/.exec(Buffer.from(json).toString("latin1")) ?? [];
  // Clients recognize only these three events as the end.
  const type = `response.${status === "completed" || status === "failed" ? status : "incomplete"}`;
  const prefix = `event: ${type}\ndata: {"type":"${type}","sequence_number":${sequence},"response":`;
  return { type, frame: Buffer.concat([Buffer.from(prefix), json, Buffer.from("}\n\n")]) };
}

/** Reads the events of one response in order, as far as they are written. */
class EventReading {
  readonly #store: BackgroundStore;
  readonly #id: string;
  readonly #startingAfter: number;
  #position: EventPosition | undefined;
  /** The sequence number of the next whole frame. */
  #sequence = 0;
  /** The received part of that frame. */
  #rest: Uint8Array = new Uint8Array();

  constructor(store: BackgroundStore, id: string, startingAfter: number) {
    this.#store = store;
    this.#id = id;
    this.#startingAfter = startingAfter;
  }

  /** Returns whole frames, possibly none if all are skipped. Returns undefined if there are no more. */
  async next(): Promise<Uint8Array | undefined> {
    if (this.#position === undefined) {
      this.#position = await this.#store.positionAfter(this.#id, this.#startingAfter);
      this.#sequence = this.#position.firstSequence;
    }
    const pieces = await this.#store.events(this.#id, this.#position);
    const last = pieces.at(-1);
    if (last === undefined) return undefined;
    this.#position = { firstSequence: last.firstSequence, number: last.number + 1 };
    return this.#take(Buffer.concat([this.#rest, ...pieces.map(({ plain }) => plain)]));
  }

  #take(bytes: Buffer): Uint8Array {
    let from = 0;
    let end = 0;
    for (let next = frameEnd(bytes, end); next > 0; next = frameEnd(bytes, end)) {
      end = next;
      if (this.#sequence++ <= this.#startingAfter) from = end;
    }
    this.#rest = bytes.subarray(end);
    return bytes.subarray(from, end);
  }
}
