import { Redis, type RedisOptions } from "ioredis";
import type { Clock } from "../../../lib/clock.ts";

/**
 * Milliseconds after which an unanswered command counts as failed. Its caller continues without
 * Redis.
 */
export const ANSWER_TIMEOUT_MS = 250;
const SLICES = 5;
/**
 * Milliseconds within which `onLate` still receives an answer. The handshake of a connection has
 * the same timeout.
 */
const COMMAND_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 1_000;
const MAX_RECONNECT_DELAY_MS = 500;

/**
 * Commands fail immediately if Redis is unavailable, and the driver reconnects for as long as it
 * takes. No command is queued or sent again: without an answer, the decision is made without Redis.
 */
const OPTIONS: RedisOptions = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 1,
  commandTimeout: COMMAND_TIMEOUT_MS,
  connectTimeout: CONNECT_TIMEOUT_MS,
  retryStrategy: (attempt) => Math.min(attempt * 50, MAX_RECONNECT_DELAY_MS),
  // A peer that hangs does not answer when the connection is closed either.
  disconnectTimeout: ANSWER_TIMEOUT_MS,
  autoResubscribe: false,
  disableClientInfo: true,
};

/**
 * Rejects if no answer is read in time. The time is counted in slices, each of which counts as its
 * own length, however late this process sees its end. A process that was blocked learns nothing
 * about Redis from that, and has the next slice to read the answers that have arrived. An answer
 * after the rejection goes to `onLate`.
 */
export function answerInTime<Answer>(
  clock: Clock,
  answer: Promise<Answer>,
  onLate: (answer: Answer) => void = () => {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let slicesLeft = SLICES;
    let cancel = (): void => {};
    const wait = (): void => {
      if (slicesLeft-- > 0) cancel = clock.after(ANSWER_TIMEOUT_MS / SLICES, wait);
      else reject(new Error("it did not answer in time"));
    };
    wait();
    answer.then(
      (value) => {
        cancel();
        if (slicesLeft < 0) onLate(value);
        else resolve(value);
      },
      (error) => {
        cancel();
        reject(error);
      },
    );
  });
}

interface RedisConnection {
  readonly redis: Redis;
  /** Resolves after the first attempt to connect, whether it succeeded or not. */
  readonly tried: Promise<void>;
  /** Drops a connection that does not answer. The driver then opens a new one. */
  reconnect(): void;
  /** Returns the error that prevents a connection, or undefined. */
  failure(): Error | undefined;
}

/** Connects in the background. Commands that fail report the errors. */
export function openRedis(url: string): RedisConnection {
  const redis = new Redis(url, OPTIONS);
  let failure: Error | undefined;
  let isDropping = false;
  redis.on("error", (error: Error) => {
    const isAboutNumber = isAboutDatabaseNumber(error);
    // Later errors are less specific than one about the database number.
    if (isAboutNumber || !isAboutDatabaseNumber(failure)) failure = error;
    // The driver would continue with database 0, which may belong to another deployment.
    if (isAboutNumber) redis.disconnect(true);
  });
  redis.on("ready", () => {
    failure = undefined;
  });
  redis.on("close", () => {
    isDropping = false;
  });
  return {
    redis,
    tried: redis.connect().catch(() => {}),
    reconnect() {
      if (isDropping || redis.status !== "ready") return;
      isDropping = true;
      redis.disconnect(true);
    },
    failure: () => failure,
  };
}

function isAboutDatabaseNumber(error: Error | undefined): boolean {
  return (error as { command?: { name?: unknown } } | undefined)?.command?.name === "select";
}

/**
 * Milliseconds by which the difference of two clocks can change between two answers. If it changes
 * by more, one of the clocks was set.
 */
const MAX_DRIFT_MS = 500;

/**
 * The time of Redis, known from its answers. The time of an answer lies between sending and
 * receiving, which bounds the difference of the two clocks.
 */
export class RedisTime {
  #leastAheadMs = Number.NEGATIVE_INFINITY;
  #mostAheadMs = Number.POSITIVE_INFINITY;

  /**
   * Records the time of an answer. Returns false if a clock was set since the last answer, so that
   * ages cannot be compared.
   */
  observe(redisMs: number, sentMs: number, receivedMs: number): boolean {
    const leastMs = redisMs - receivedMs;
    const mostMs = redisMs - sentMs;
    const agrees =
      leastMs <= this.#mostAheadMs + MAX_DRIFT_MS && mostMs >= this.#leastAheadMs - MAX_DRIFT_MS;
    this.#leastAheadMs = leastMs;
    this.#mostAheadMs = mostMs;
    return agrees;
  }

  /** Returns the latest time that Redis's clock can show when the local clock shows `localMs`. */
  latestMs(localMs: number): number {
    return Number.isFinite(this.#mostAheadMs)
      ? localMs + this.#mostAheadMs
      : Number.MAX_SAFE_INTEGER;
  }
}
