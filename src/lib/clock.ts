/** Time and timers, passed in so that a test or a simulation can control them. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  nowMs(): number;
  /** Calls `run` once after `delayMs`. The returned function cancels the call. */
  after(delayMs: number, run: () => void): () => void;
}

/** Returns whole seconds since the Unix epoch. */
export function secondsNow(clock: Clock): number {
  return Math.floor(clock.nowMs() / 1_000);
}

export function sleep(clock: Clock, delayMs: number): Promise<void> {
  return new Promise((resolve) => void clock.after(delayMs, resolve));
}

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs);
    return () => clearTimeout(timer);
  },
};

/**
 * The wall clock's time at the start of the process plus the time since then. Setting the wall clock does not
 * change it.
 */
export const steadyClock: Clock = {
  nowMs: () => performance.timeOrigin + performance.now(),
  after: systemClock.after,
};

/** Returns a clock that measures elapsed time by the given clock and never goes back, even if that clock does. */
export function steady(clock: Clock): Clock {
  if (clock === systemClock) return steadyClock;
  let lastMs = clock.nowMs();
  let correctionMs = 0;
  return {
    nowMs() {
      const nowMs = clock.nowMs();
      if (nowMs + correctionMs < lastMs) correctionMs = lastMs - nowMs;
      lastMs = nowMs + correctionMs;
      return lastMs;
    },
    after: (delayMs, run) => clock.after(delayMs, run),
  };
}

/** A clock that moves only by `advance`, which runs due callbacks in the order of their times. */
export class VirtualClock implements Clock {
  #nowMs: number;
  #sequence = 0;
  #timers = new Map<number, { dueMs: number; run: () => void }>();

  constructor(startMs = Date.UTC(2026, 0, 1)) {
    this.#nowMs = startMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  after(delayMs: number, run: () => void): () => void {
    const id = this.#sequence++;
    this.#timers.set(id, { dueMs: this.#nowMs + Math.max(0, delayMs), run });
    return () => this.#timers.delete(id);
  }

  advance(byMs: number): void {
    const untilMs = this.#nowMs + byMs;
    for (;;) {
      const next = this.#nextDue(untilMs);
      if (next === undefined) break;
      const timer = this.#timers.get(next)!;
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, timer.dueMs);
      timer.run();
    }
    this.#nowMs = untilMs;
  }

  #nextDue(untilMs: number): number | undefined {
    let best: number | undefined;
    let bestDueMs = Number.POSITIVE_INFINITY;
    for (const [id, timer] of this.#timers) {
      if (timer.dueMs <= untilMs && timer.dueMs < bestDueMs) {
        best = id;
        bestDueMs = timer.dueMs;
      }
    }
    return best;
  }
}
