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
