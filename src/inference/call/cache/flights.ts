import type { Database } from "../../../../db/client.ts";
import {
  type AnswerPlace,
  claimFlight,
  endFlight,
  renewFlights,
} from "../../../../db/queries/response-cache.ts";
import { type Clock, sleep } from "../../../lib/clock.ts";
import type { DeadlineQueue } from "../../../lib/deadlines.ts";
import { clientClosed, GatewayError, stopping } from "../../../lib/errors.ts";
import type { CachedAnswer } from "./answer-cache.ts";

/** Well within the lease of a flight. */
const RENEW_MS = 2_500;
/** How often a flight of another instance is looked at. */
const POLL_MS = 50;

export interface FlightDependencies {
  readonly sql: Database;
  readonly steadyClock: Clock;
  /** The total timeout of calls. */
  readonly deadlines: DeadlineQueue;
  isAborting(): boolean;
  onError(error: unknown): void;
}

/** A request that may wait for an equal one. */
export interface Waiting {
  readonly place: AnswerPlace;
  readonly requestId: string;
  readonly clientSignal: AbortSignal;
  /** Looks into the cache. */
  find(): Promise<CachedAnswer | undefined>;
}

/** What a request that asked for one flight does: it gets the answer of another one, or makes it. */
export type JoinResult =
  | { readonly kind: "answered"; readonly answer: CachedAnswer }
  | { readonly kind: "leads"; readonly flight: Flight };

/**
 * Equal requests that run at once: one of them leads, here or on another instance, and the others wait for its
 * answer. Where it brings none that is kept, the next one leads. A claim in the database, which its instance
 * renews, keeps other instances waiting; where the database cannot be reached, each instance has a leader.
 */
export class InFlightDeduplication {
  readonly #dependencies: FlightDependencies;
  /** By place. */
  readonly #flights = new Map<string, Flight>();
  /** Those that are claimed. */
  readonly #claimed = new Set<Flight>();
  #isRenewing = false;

  constructor(dependencies: FlightDependencies) {
    this.#dependencies = dependencies;
  }

  /** Rejects where the client goes, the gateway stops, or the wait takes longer than a call may. */
  async board(waiting: Waiting): Promise<JoinResult> {
    const { deadlines, isAborting } = this.#dependencies;
    const { clientSignal } = waiting;
    const { promise: over, reject } = Promise.withResolvers<never>();
    over.catch(() => {});
    const leave = () => reject(clientClosed());
    clientSignal.addEventListener("abort", leave);
    if (clientSignal.aborted) leave();
    const deadline = deadlines.add(() => reject(isAborting() ? stopping() : timedOut()));
    try {
      return await this.#board(waiting, over);
    } finally {
      deadline.cancel();
      clientSignal.removeEventListener("abort", leave);
    }
  }

  async #board(waiting: Waiting, over: Promise<never>): Promise<JoinResult> {
    const { place } = waiting;
    const name = `${place.organizationId} ${place.keyHash}`;
    for (;;) {
      const running = this.#flights.get(name);
      if (running !== undefined) {
        const answer = await Promise.race([running.ended, over]);
        if (answer !== undefined) return { kind: "answered", answer };
        continue;
      }
      const flight = new Flight(waiting, (ended, answer) => this.#end(name, ended, answer));
      this.#flights.set(name, flight);
      try {
        const answer = await this.#claim(flight, waiting, over);
        if (answer === undefined) return { kind: "leads", flight };
        flight.end(answer);
        return { kind: "answered", answer };
      } catch (error) {
        flight.end(undefined);
        throw error;
      }
    }
  }

  /** Resolves with the answer of another instance, or undefined where the flight is this one's. */
  async #claim(
    flight: Flight,
    { place, requestId, find }: Waiting,
    over: Promise<never>,
  ): Promise<CachedAnswer | undefined> {
    const { sql, steadyClock, onError } = this.#dependencies;
    for (;;) {
      flight.claiming = claimFlight(sql, place, requestId).catch((error) => {
        onError(error);
        return true;
      });
      const isClaimed = await Promise.race([flight.claiming, over]);
      if (isClaimed) this.#renew(flight);
      // What another instance led may have ended between the look before and the claim.
      const answer = await Promise.race([find(), over]);
      if (answer !== undefined || isClaimed) return answer;
      await Promise.race([sleep(steadyClock, POLL_MS), over]);
    }
  }

  /** Resolves when another request can lead. */
  async #end(name: string, flight: Flight, answer: CachedAnswer | undefined): Promise<void> {
    this.#claimed.delete(flight);
    // Who comes from now on finds it in the cache, unless that was purged.
    if (answer !== undefined) this.#flights.delete(name);
    const { sql, onError } = this.#dependencies;
    // A claim that its request no longer waits for may still be written.
    if (await flight.claiming) {
      await endFlight(sql, flight.place, flight.requestId).catch(onError);
    }
    if (answer === undefined) this.#flights.delete(name);
  }

  #renew(flight: Flight): void {
    this.#claimed.add(flight);
    this.#renewSoon();
  }

  #renewSoon(): void {
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    const { sql, steadyClock, onError } = this.#dependencies;
    steadyClock.after(RENEW_MS, async () => {
      if (this.#claimed.size > 0) await renewFlights(sql, [...this.#claimed]).catch(onError);
      this.#isRenewing = false;
      if (this.#claimed.size > 0) this.#renewSoon();
    });
  }
}

/** Resolves when another request can lead. */
type FlightEnd = (flight: Flight, answer: CachedAnswer | undefined) => Promise<void>;

/** A request whose answer others wait for. */
export class Flight {
  readonly place: AnswerPlace;
  readonly requestId: string;
  /** Resolves with its answer; undefined where it brings none that is kept. */
  readonly ended: Promise<CachedAnswer | undefined>;
  /** Whether the database has noted that it runs. */
  claiming: Promise<boolean> | undefined;
  readonly #resolve: (answer: CachedAnswer | undefined) => void;
  #onEnd: FlightEnd | undefined;

  constructor({ place, requestId }: Waiting, onEnd: FlightEnd) {
    this.place = place;
    this.requestId = requestId;
    const { promise, resolve } = Promise.withResolvers<CachedAnswer | undefined>();
    this.ended = promise;
    this.#resolve = resolve;
    this.#onEnd = onEnd;
  }

  /** The first end stands. */
  end(answer: CachedAnswer | undefined): void {
    const onEnd = this.#onEnd;
    if (onEnd === undefined) return;
    this.#onEnd = undefined;
    const released = onEnd(this, answer);
    if (answer !== undefined) this.#resolve(answer);
    else void released.then(() => this.#resolve(undefined));
  }
}

function timedOut(): GatewayError {
  return new GatewayError("provider_timeout", "The provider did not respond in time.");
}
