import { isRunning } from "../../../db/queries/background-responses.ts";
import { enqueueInPieces } from "../../lib/body-pieces.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { SharedRoom } from "../../lib/fair-share.ts";
import { DONE } from "../endpoints/responses/response-renderer.ts";
import type { BackgroundRuns } from "./background-runs.ts";
import type { BackgroundStore, EventPlace } from "./background-store.ts";
import { frameEnd } from "./event-log.ts";

/** Who follows a response. */
export interface EventFollower {
  readonly organizationId: string;
  /** Events up to this number are left out. */
  readonly startingAfter: number;
  /** Aborted when the client goes. */
  readonly signal: AbortSignal;
  /** Rejects where its key may not read the response any more. */
  assertAllowed(): Promise<unknown>;
}

interface FollowingDependencies {
  readonly store: BackgroundStore;
  readonly runs: BackgroundRuns;
  readonly clock: Clock;
  readonly keepaliveMs: number;
  onError(error: unknown): void;
}

/** Streams of this process at a time: their clients need not read what is sent to them. */
const MAX_FOLLOWERS = 500;
/** One organization cannot take all of them. */
const MAX_FOLLOWERS_OF_ORGANIZATION = 250;
/** A stream that lasts longer ends; its client comes again, with the number of the last event. */
const MAX_FOLLOWING_MS = 3_600_000;
/** How often the events of a response are looked for that another instance runs. */
const LOOK_MS = 250;
const KEEPALIVE = new TextEncoder().encode(": keepalive\n\n");
const END = new TextEncoder().encode(DONE);

/** Streams the events of background responses, with the numbers that they have, on every instance. */
export class EventFollowing {
  readonly #dependencies: FollowingDependencies;
  readonly #slots = new SharedRoom(MAX_FOLLOWERS, MAX_FOLLOWERS_OF_ORGANIZATION);
  readonly #draining = new AbortController();
  readonly #stopped = new AbortController();

  constructor(dependencies: FollowingDependencies) {
    this.#dependencies = dependencies;
  }

  /** Ends the streams of what runs elsewhere, which can be followed elsewhere; the others end with what runs here. */
  drain(): void {
    this.#draining.abort();
    this.#dependencies.runs.ears.noticeAll();
  }

  /** Ends every stream. */
  stop(): void {
    this.#stopped.abort();
  }

  /** Makes room for a stream, which `open` or `free` then takes up. Throws 503 where too many are open. */
  reserve(organizationId: string): { open: OpenEvents; free(): void } {
    if (!this.#slots.tryTake(organizationId)) {
      throw new GatewayError("overloaded", "Too many event streams are open.", {
        retryAfterSeconds: 5,
      });
    }
    const free = () => this.#slots.free(organizationId);
    return {
      free,
      open: (id, follower, onOver) =>
        streamOf(this.#frames(id, follower), () => {
          free();
          onOver();
        }),
    };
  }

  /** Never throws. */
  async *#frames(id: string, follower: EventFollower): AsyncGenerator<Uint8Array> {
    const { store, runs, clock, keepaliveMs, onError } = this.#dependencies;
    const { organizationId, startingAfter } = follower;
    const signal = AbortSignal.any([follower.signal, this.#stopped.signal]);
    const endsAtMs = clock.nowMs() + MAX_FOLLOWING_MS;
    const ear = runs.ears.open(id, signal);
    try {
      const events = new EventReading(store, id, startingAfter);
      let quietMs = 0;
      while (!signal.aborted && clock.nowMs() < endsAtMs) {
        // Its state first: what was written when it has ended is then all there is.
        const found = await store.find(organizationId, id);
        if (found === undefined || !(await isAllowed(follower))) return;
        const frames = await events.next();
        if (frames !== undefined) {
          quietMs = 0;
          if (frames.length > 0) yield frames;
          continue;
        }
        if (!isRunning(found.state)) {
          const json = await store.response(organizationId, id);
          const { type, frame } = lastEvent(json, found.lastSequence + 1);
          if (found.lastSequence + 1 > startingAfter) yield frame;
          if (type !== "response.failed") yield END;
          return;
        }
        const isHere = runs.has(id);
        if (!isHere && this.#draining.signal.aborted) return;
        const waitMs = isHere ? keepaliveMs : Math.min(LOOK_MS, keepaliveMs);
        quietMs = (await ear.listen(clock, waitMs)) ? quietMs + waitMs : 0;
        if (quietMs < keepaliveMs || signal.aborted) continue;
        quietMs = 0;
        yield KEEPALIVE;
      }
    } catch (error) {
      // The stream ends short of its end, which its client resumes.
      if (!signal.aborted) onError(error);
    } finally {
      ear.close();
    }
  }
}

/** A stream of a response's events: `onOver` is called once, when it is over. */
type OpenEvents = (
  id: string,
  follower: EventFollower,
  onOver: () => void,
) => ReadableStream<Uint8Array>;

function streamOf(
  frames: AsyncGenerator<Uint8Array>,
  onOver: () => void,
): ReadableStream<Uint8Array> {
  let isOver = false;
  const end = () => {
    if (!isOver) onOver();
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

/** The event that ends a response, whose own state it is: no batch holds it. */
function lastEvent(json: Uint8Array, sequence: number): { type: string; frame: Uint8Array } {
  // Nothing stands before its status that a caller has written.
  const [, status] = /"status":"(\w+)"/.exec(Buffer.from(json).toString("latin1")) ?? [];
  // Clients wait on for any other event than these three.
  const type = `response.${status === "completed" || status === "failed" ? status : "incomplete"}`;
  const before = `event: ${type}\ndata: {"type":"${type}","sequence_number":${sequence},"response":`;
  return { type, frame: Buffer.concat([Buffer.from(before), json, Buffer.from("}\n\n")]) };
}

/** Reads the events of one response in their order, as far as they are written. */
class EventReading {
  readonly #store: BackgroundStore;
  readonly #id: string;
  readonly #startingAfter: number;
  #place: EventPlace | undefined;
  /** Of the next whole frame. */
  #sequence = 0;
  /** What has come of that frame. */
  #rest: Uint8Array = new Uint8Array();

  constructor(store: BackgroundStore, id: string, startingAfter: number) {
    this.#store = store;
    this.#id = id;
    this.#startingAfter = startingAfter;
  }

  /** Whole frames, which may all be left out; undefined where no more are there. */
  async next(): Promise<Uint8Array | undefined> {
    if (this.#place === undefined) {
      this.#place = await this.#store.placeBehind(this.#id, this.#startingAfter);
      this.#sequence = this.#place.firstSequence;
    }
    const pieces = await this.#store.events(this.#id, this.#place);
    const last = pieces.at(-1);
    if (last === undefined) return undefined;
    this.#place = { firstSequence: last.firstSequence, number: last.number + 1 };
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
