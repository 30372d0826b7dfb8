import type { PendingHold } from "./pending-hold.ts";

/** How many of each key are asked for again at first; more follow where these get what they want. */
const FIRST_WIDTH = 4;
const WIDTH_GROWTH = 4;
const MAX_WIDTH = 4_096;

/**
 * Requests of one organization that wait for holds to end, first come first served. Where money may have
 * come free the first of each key are asked for again, and more of them as long as that brings something.
 */
export class WaitingLine {
  readonly organizationId: string;
  readonly #entries = new Map<PendingHold, "organization" | "key">();
  readonly #ofKey = new Map<string, number>();
  #shortOfOrganization = 0;
  #width = FIRST_WIDTH;
  #hasGrown = false;

  constructor(organizationId: string) {
    this.organizationId = organizationId;
  }

  get length(): number {
    return this.#entries.size;
  }

  has(pending: PendingHold): boolean {
    return this.#entries.has(pending);
  }

  /** True where an earlier request waits for what a request of this key needs. */
  standsBefore(keyId: string): boolean {
    return this.#shortOfOrganization > 0 || this.#ofKey.has(keyId);
  }

  /** Puts it at the end, or notes what one that waits already is short of. */
  note(pending: PendingHold, shortOf: "organization" | "key"): void {
    const before = this.#entries.get(pending);
    this.#entries.set(pending, shortOf);
    if (before === undefined) {
      const { keyId } = pending.request;
      this.#ofKey.set(keyId, (this.#ofKey.get(keyId) ?? 0) + 1);
    }
    if (before === "organization") this.#shortOfOrganization--;
    if (shortOf === "organization") this.#shortOfOrganization++;
  }

  remove(pending: PendingHold): void {
    const shortOf = this.#entries.get(pending);
    if (shortOf === undefined) return;
    this.#entries.delete(pending);
    if (shortOf === "organization") this.#shortOfOrganization--;
    const { keyId } = pending.request;
    const left = this.#ofKey.get(keyId)! - 1;
    if (left === 0) this.#ofKey.delete(keyId);
    else this.#ofKey.set(keyId, left);
  }

  /** The next to be asked for again, at most so many. */
  next(limit: number): PendingHold[] {
    if (!this.#hasGrown) this.#width = FIRST_WIDTH;
    this.#hasGrown = false;
    const next: PendingHold[] = [];
    const ofKey = new Map<string, number>();
    for (const pending of this.#entries.keys()) {
      if (next.length >= limit) break;
      if (pending.place !== "waiting" || pending.isDue) continue;
      const { keyId } = pending.request;
      const count = ofKey.get(keyId) ?? 0;
      if (count >= this.#width) continue;
      ofKey.set(keyId, count + 1);
      next.push(pending);
    }
    return next;
  }

  /** One of those that were asked for again has left the line. */
  widen(): void {
    if (this.#hasGrown) return;
    this.#hasGrown = true;
    this.#width = Math.min(this.#width * WIDTH_GROWTH, MAX_WIDTH);
  }
}
