/**
 * The most instances that lived at any time within a window. An instance that died a moment ago may have
 * admitted its share, so for a whole window the others go on leaving it to it.
 */
export class LiveHistory {
  readonly #windowMs: number;
  /** Falling counts, each with the time at which it was last seen. */
  readonly #peaks: { live: number; seenMs: number }[] = [];

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  /** Notes how many live now, and returns the most. */
  most(live: number, nowMs: number): number {
    const peaks = this.#peaks;
    while (peaks.length > 0 && peaks.at(-1)!.live <= live) peaks.pop();
    peaks.push({ live, seenMs: nowMs });
    while (nowMs - peaks[0]!.seenMs > this.#windowMs) peaks.shift();
    return peaks[0]!.live;
  }
}
