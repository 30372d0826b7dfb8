import type { Database } from "../../../../db/client.ts";
import {
  type AnswerKey,
  claimFlight,
  endFlight,
  renewFlights,
} from "../../../../db/queries/response-cache.ts";
import { type Clock, sleep } from "../../../lib/clock.ts";
import type { DeadlineQueue } from "../../../lib/deadlines.ts";
import { clientClosed, GatewayError, stopping } from "../../../lib/errors.ts";
import type { CachedAnswer } from "./answer-cache.ts";

/** Well within the lease of a claim. */
const RENEW_MS = 2_500;
/** The interval for checking a leader on another instance. */
const POLL_MS = 50;

export interface FlightDependencies {
  readonly sql: Database;
  readonly steadyClock: Clock;
  /** The total timeout of calls. */
  readonly deadlines: DeadlineQueue;
  isAborting(): boolean;
  onError(error: unknown): void;
}

/** A request that can wait for an equal request. */
export interface WaitingRequest {
  readonly key: AnswerKey;
  readonly requestId: string;
  readonly clientSignal: AbortSignal;
  /** Looks for the answer in the cache. */
  find(): Promise<CachedAnswer | undefined>;
}

/** The result of joining: the answer of an equal request, or the task of leading. */
export type JoinResult =
  | { readonly kind: "answered"; readonly answer: CachedAnswer }
  | { readonly kind: "leads"; readonly flight: Leader };

/**
 * Single-flight deduplication of equal requests that run at the same time. One of them leads, on this or
 * another instance, and the others wait for its answer. If the leader stores no answer, the next request
 * leads. A claim in the database makes other instances wait; its instance renews it. If the database cannot
 * be reached, each instance has its own leader.
 */
export class InFlightDeduplication {
  readonly #dependencies: FlightDependencies;
  /** Running leaders, by cache key. */
  readonly #flights = new Map<string, Leader>();
  /** Leaders with a claim in the database. */
  readonly #claimed = new Set<Leader>();
  #isRenewing = false;

  constructor(dependencies: FlightDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Waits for the answer of an equal request, or makes this request the leader. Rejects if the client
   * disconnects, the gateway stops, or the wait exceeds the total timeout of calls.
   */
  async join(waiting: WaitingRequest): Promise<JoinResult> {
    const { deadlines, isAborting } = this.#dependencies;
    const { clientSignal } = waiting;
    const { promise: over, reject } = Promise.withResolvers<never>();
    over.catch(() => {});
    const leave = () => reject(clientClosed());
    clientSignal.addEventListener("abort", leave);
    if (clientSignal.aborted) leave();
    const deadline = deadlines.add(() => reject(isAborting() ? stopping() : timedOut()));
    try {
      return await this.#joinFlight(waiting, over);
    } finally {
      deadline.cancel();
      clientSignal.removeEventListener("abort", leave);
    }
  }

  async #joinFlight(waiting: WaitingRequest, over: Promise<never>): Promise<JoinResult> {
    const { key } = waiting;
    const name = `${key.organizationId} ${key.keyHash}`;
    for (;;) {
      const running = this.#flights.get(name);
      if (running !== undefined) {
        const answer = await Promise.race([running.ended, over]);
        if (answer !== undefined) return { kind: "answered", answer };
        continue;
      }
      const flight = new Leader(waiting, (ended, answer) => this.#end(name, ended, answer));
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

  /** Resolves with the answer of another instance, or with undefined if this request leads. */
  async #claim(
    flight: Leader,
    { key, requestId, find }: WaitingRequest,
    over: Promise<never>,
  ): Promise<CachedAnswer | undefined> {
    const { sql, steadyClock, onError } = this.#dependencies;
    for (;;) {
      flight.claiming = claimFlight(sql, key, requestId).catch((error) => {
        onError(error);
        return true;
      });
      const isClaimed = await Promise.race([flight.claiming, over]);
      if (isClaimed) this.#renew(flight);
      // A leader on another instance may have ended between the previous look-up and the claim.
      const answer = await Promise.race([find(), over]);
      if (answer !== undefined || isClaimed) return answer;
      await Promise.race([sleep(steadyClock, POLL_MS), over]);
    }
  }

  /** Ends a leader. Resolves when another request can lead. */
  async #end(name: string, flight: Leader, answer: CachedAnswer | undefined): Promise<void> {
    this.#claimed.delete(flight);
    // Later requests find the answer in the cache, unless the cache was purged.
    if (answer !== undefined) this.#flights.delete(name);
    const { sql, onError } = this.#dependencies;
    // The claim can still be written after its request has stopped waiting for it.
    if (await flight.claiming) {
      await endFlight(sql, flight.key, flight.requestId).catch(onError);
    }
    if (answer === undefined) this.#flights.delete(name);
  }

  #renew(flight: Leader): void {
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

/** Ends a leader. Resolves when another request can lead. */
type FlightEnd = (flight: Leader, answer: CachedAnswer | undefined) => Promise<void>;

/** A request for whose answer other requests wait. */
export class Leader {
  readonly key: AnswerKey;
  readonly requestId: string;
  /** Resolves with the stored answer, or with undefined if none was stored. */
  readonly ended: Promise<CachedAnswer | undefined>;
  /** Resolves with true if the database has recorded the claim. */
  claiming: Promise<boolean> | undefined;
  readonly #resolve: (answer: CachedAnswer | undefined) => void;
  #onEnd: FlightEnd | undefined;

  constructor({ key, requestId }: WaitingRequest, onEnd: FlightEnd) {
    this.key = key;
    this.requestId = requestId;
    const { promise, resolve } = Promise.withResolvers<CachedAnswer | undefined>();
    this.ended = promise;
    this.#resolve = resolve;
    this.#onEnd = onEnd;
  }

  /** Ends the leader. Only the first call has an effect. */
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
