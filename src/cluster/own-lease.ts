import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";

/** Some heartbeats were missed, or one hung. */
const MAX_STEADY_GAP_MS = 1_000;

/**
 * This instance's own lease, by its monotonic clock. A heartbeat counts from the moment at which it was
 * begun, which is never later than the moment that the database noted: while this lease lasts, nobody
 * takes the instance for dead.
 */
export class OwnLease {
  readonly #nowMs: () => number;
  readonly #threadAgeMs: () => number;
  #beganMs = Number.NEGATIVE_INFINITY;
  #steadySinceMs = Number.POSITIVE_INFINITY;
  #waiting: (() => void)[] = [];

  /** `threadAgeMs`: how long ago the last heartbeat of the heartbeat thread began, where there is one. */
  constructor(
    nowMs: () => number = () => performance.now(),
    threadAgeMs: () => number = () => Number.POSITIVE_INFINITY,
  ) {
    this.#nowMs = nowMs;
    this.#threadAgeMs = threadAgeMs;
  }

  get isCurrent(): boolean {
    if (this.#nowMs() - this.#beganMs < INSTANCE_LEASE_MS) return true;
    return this.#threadAgeMs() < INSTANCE_LEASE_MS;
  }

  /** Undefined while the lease lasts; else resolves when it does again. */
  whenCurrent(): Promise<void> | undefined {
    if (this.isCurrent) return undefined;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /**
   * True where the database was in reach for a whole lease without a pause, so that whoever lives was
   * heard of in it: before that an outage would be taken for the death of everyone.
   */
  get mayJudgeOthers(): boolean {
    return this.isCurrent && this.#nowMs() - this.#steadySinceMs >= INSTANCE_LEASE_MS;
  }

  /** A heartbeat that began at `beganMs` was answered. */
  renew(beganMs: number): void {
    const endedMs = this.#nowMs();
    const isPause = endedMs - this.#beganMs > MAX_STEADY_GAP_MS;
    if (isPause || !Number.isFinite(this.#steadySinceMs)) this.#steadySinceMs = endedMs;
    this.#beganMs = beganMs;
    if (this.isCurrent) for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** A heartbeat failed. */
  interrupt(): void {
    this.#steadySinceMs = Number.POSITIVE_INFINITY;
  }
}
