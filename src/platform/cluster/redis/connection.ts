import { Redis, type RedisOptions } from "ioredis";
import type { Clock } from "../../../lib/clock.ts";

/** Without an answer by then a command has failed; its caller continues without Redis. */
export const ANSWER_TIMEOUT_MS = 250;
const SLICES = 5;
/** Until then an answer is awaited by `onLate`, and by the handshake of a connection. */
const COMMAND_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 1_000;
const MAX_RECONNECT_DELAY_MS = 500;

/**
 * Fails at once where Redis is not there, and connects again by itself for as long as it takes. Nothing is
 * kept for later or sent a second time: what was not answered is decided without Redis.
 */
const OPTIONS: RedisOptions = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 1,
  commandTimeout: COMMAND_TIMEOUT_MS,
  connectTimeout: CONNECT_TIMEOUT_MS,
  retryStrategy: (attempt) => Math.min(attempt * 50, MAX_RECONNECT_DELAY_MS),
  // A peer that hangs does not take part in closing either.
  disconnectTimeout: ANSWER_TIMEOUT_MS,
  autoResubscribe: false,
  disableClientInfo: true,
};

/**
 * Rejects where no answer is read in time. Time is counted in slices, each as its own length however late this
 * process sees its end: a process that was held up learns nothing of Redis by that, and has the next slice to
 * read what came meanwhile. An answer that comes after the rejection goes to `onLate`.
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
  /** Resolves when the first attempt to connect has ended, however it did. */
  readonly tried: Promise<void>;
  /** Drops a connection on which nothing is answered; a new one follows by itself. */
  reconnect(): void;
  /** What keeps it from connecting, if anything does. */
  failure(): Error | undefined;
}

/** Connects in the background. Commands that fail report what goes wrong. */
export function openRedis(url: string): RedisConnection {
  const redis = new Redis(url, OPTIONS);
  let failure: Error | undefined;
  let isDropping = false;
  redis.on("error", (error: Error) => {
    const isOfNumber = isOfDatabaseNumber(error);
    // What follows it says less.
    if (isOfNumber || !isOfDatabaseNumber(failure)) failure = error;
    // The driver would continue with database 0, which may belong to another deployment.
    if (isOfNumber) redis.disconnect(true);
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

function isOfDatabaseNumber(error: Error | undefined): boolean {
  return (error as { command?: { name?: unknown } } | undefined)?.command?.name === "select";
}

/** Two clocks that run apart by more than this between two answers were not merely slow: one was set. */
const MAX_DRIFT_MS = 500;

/**
 * What time Redis has, known from its answers. An answer's time lies between sending and receiving, which
 * bounds by how much the two clocks differ.
 */
export class RedisTime {
  #leastAheadMs = Number.NEGATIVE_INFINITY;
  #mostAheadMs = Number.POSITIVE_INFINITY;

  /** False where a clock was set since the last answer, so that nothing can be said of ages. */
  observe(redisMs: number, sentMs: number, receivedMs: number): boolean {
    const leastMs = redisMs - receivedMs;
    const mostMs = redisMs - sentMs;
    const agrees =
      leastMs <= this.#mostAheadMs + MAX_DRIFT_MS && mostMs >= this.#leastAheadMs - MAX_DRIFT_MS;
    this.#leastAheadMs = leastMs;
    this.#mostAheadMs = mostMs;
    return agrees;
  }

  /** The time that Redis has at most when `localMs` is reached. */
  latestMs(localMs: number): number {
    return Number.isFinite(this.#mostAheadMs)
      ? localMs + this.#mostAheadMs
      : Number.MAX_SAFE_INTEGER;
  }
}
