interface Share {
  inFlight: number;
  readonly waiting: (() => void)[];
}

/**
 * Bounds the attempts that are under way at a time. Organizations take turns, and none has more than half
 * of it: receivers of one that never answer leave room for those of the others.
 */
export class SendSlots {
  readonly #most: number;
  readonly #mostOfOne: number;
  readonly #shares = new Map<string, Share>();
  #inFlight = 0;

  constructor(most: number) {
    this.#most = most;
    this.#mostOfOne = Math.max(1, Math.floor(most / 2));
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Undefined where there is room now; else a promise of it. `give` ends what either began. */
  take(organizationId: string): Promise<void> | undefined {
    let share = this.#shares.get(organizationId);
    if (share === undefined) {
      share = { inFlight: 0, waiting: [] };
      this.#shares.set(organizationId, share);
    }
    if (this.#inFlight < this.#most && share.inFlight < this.#mostOfOne) {
      this.#begin(share);
      return undefined;
    }
    const { waiting } = share;
    return new Promise((resolve) => waiting.push(resolve));
  }

  give(organizationId: string): void {
    const share = this.#shares.get(organizationId)!;
    this.#inFlight--;
    share.inFlight--;
    if (share.inFlight === 0 && share.waiting.length === 0) this.#shares.delete(organizationId);
    this.#letIn();
  }

  #letIn(): void {
    for (const [organizationId, share] of this.#shares) {
      if (this.#inFlight >= this.#most) return;
      if (share.waiting.length === 0 || share.inFlight >= this.#mostOfOne) continue;
      this.#begin(share);
      share.waiting.shift()!();
      // It goes to the end of the row.
      this.#shares.delete(organizationId);
      this.#shares.set(organizationId, share);
      return;
    }
  }

  #begin(share: Share): void {
    this.#inFlight++;
    share.inFlight++;
  }
}
