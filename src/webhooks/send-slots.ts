import type { Clock } from "../lib/clock.ts";
import { FairQueue } from "../lib/fair-share.ts";

/** The organization and the receiver of an attempt. */
export interface SendTarget {
  readonly organizationId: string;
  /** Host and port of the receiver. */
  readonly host: string;
}

/** Permission to run one attempt. */
export interface SendSlot {
  readonly target: SendTarget;
  /** Ends the attempt. */
  release(): void;
}

/** Duration above which an attempt makes its receiver slow. A shorter attempt makes it fast again. */
export const SLOW_ATTEMPT_MS = 1_000;
/**
 * Most receivers that are recorded as slow. Above this number, the receiver that became slow first counts as fast
 * until its next slow attempt.
 */
const MAX_SLOW_HOSTS = 10_000;

interface Waiting {
  readonly target: SendTarget;
  enter(slot: SendSlot): void;
}

interface Lane {
  readonly most: number;
  readonly waiting: FairQueue<Waiting>;
  inFlight: number;
}

/**
 * Limits concurrent attempts. Slow receivers share a separate lane with half of the slots, so that they cannot
 * block attempts to fast receivers. In a lane, organizations are served in turn, the one with the fewest running
 * attempts first. An organization has at most a quarter of all slots, a receiver at most half, and a slow
 * receiver at most an eighth.
 */
export class SendSlots {
  readonly #most: number;
  readonly #clock: Clock;
  readonly #fast: Lane;
  readonly #slow: Lane;
  readonly #byOrganization = new Map<string, number>();
  readonly #byHost = new Map<string, number>();
  /** Slow receivers in the order in which they became slow. */
  readonly #slowHosts = new Set<string>();

  constructor(most: number, clock: Clock) {
    this.#most = most;
    this.#clock = clock;
    this.#fast = { most, waiting: new FairQueue(), inFlight: 0 };
    this.#slow = { most: share(most, 2), waiting: new FairQueue(), inFlight: 0 };
  }

  get inFlight(): number {
    return this.#fast.inFlight + this.#slow.inFlight;
  }

  /** Returns a slot immediately if there is room, otherwise a promise of one. */
  take(target: SendTarget): SendSlot | Promise<SendSlot> {
    const slot = this.tryTake(target);
    if (slot !== undefined) return slot;
    const lane = this.#laneOf(target.host);
    return new Promise((enter) => lane.waiting.push(keyOf(target), { target, enter }));
  }

  /** Returns a slot, or undefined if there is no room now. */
  tryTake(target: SendTarget): SendSlot | undefined {
    const lane = this.#laneOf(target.host);
    return this.#isRoom(lane, target) ? this.#begin(lane, target) : undefined;
  }

  #laneOf(host: string): Lane {
    return this.#slowHosts.has(host) ? this.#slow : this.#fast;
  }

  #isRoom(lane: Lane, { organizationId, host }: SendTarget): boolean {
    const mostOfHost = share(this.#most, lane === this.#slow ? 8 : 2);
    return (
      lane.inFlight < lane.most &&
      !this.#isFullFor(organizationId) &&
      (this.#byHost.get(host) ?? 0) < mostOfHost
    );
  }

  #isFullFor(organizationId: string): boolean {
    return this.inFlight >= this.#most || this.#loadOf(organizationId) >= share(this.#most, 4);
  }

  #loadOf(organizationId: string): number {
    return this.#byOrganization.get(organizationId) ?? 0;
  }

  #begin(first: Lane, target: SendTarget): SendSlot {
    let lane = first;
    lane.inFlight++;
    add(this.#byOrganization, target.organizationId, 1);
    add(this.#byHost, target.host, 1);
    let isLate = false;
    const cancel = this.#clock.after(SLOW_ATTEMPT_MS, () => {
      isLate = true;
      this.#noteSlow(target.host);
      lane.inFlight--;
      lane = this.#slow;
      lane.inFlight++;
      this.#letIn([this.#fast]);
    });
    let isReleased = false;
    return {
      target,
      release: () => {
        if (isReleased) return;
        isReleased = true;
        cancel();
        const isFastAgain = !isLate && this.#slowHosts.delete(target.host);
        const wasScarce = isFastAgain || this.#isFullFor(target.organizationId);
        lane.inFlight--;
        add(this.#byOrganization, target.organizationId, -1);
        add(this.#byHost, target.host, -1);
        // Otherwise no attempt in the other lane has waited for this slot.
        this.#letIn(wasScarce ? [this.#fast, this.#slow] : [lane]);
      },
    };
  }

  #noteSlow(host: string): void {
    if (this.#slowHosts.size >= MAX_SLOW_HOSTS) {
      for (const first of this.#slowHosts) {
        this.#slowHosts.delete(first);
        break;
      }
    }
    this.#slowHosts.add(host);
  }

  #letIn(lanes: readonly Lane[]): void {
    for (const lane of lanes) {
      while (this.inFlight < this.#most && lane.inFlight < lane.most) {
        const next = lane.waiting.shift(
          ({ target }) => this.#loadOf(target.organizationId),
          ({ target }) => this.#isRoom(lane, target) || this.#laneOf(target.host) !== lane,
        );
        if (next === undefined) break;
        const { target } = next;
        // The receiver may have become slow or fast during the wait.
        const currentLane = this.#laneOf(target.host);
        if (this.#isRoom(currentLane, target)) next.enter(this.#begin(currentLane, target));
        else currentLane.waiting.push(keyOf(target), next);
      }
    }
  }
}

function keyOf({ organizationId, host }: SendTarget): string {
  return `${organizationId} ${host}`;
}

function share(most: number, parts: number): number {
  return Math.max(1, Math.floor(most / parts));
}

function add(counts: Map<string, number>, key: string, change: 1 | -1): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}
