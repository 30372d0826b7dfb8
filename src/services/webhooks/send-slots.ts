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
    if (this.tryTake(organizationId)) return undefined;
    const { waiting } = this.#shareOf(organizationId);
    return new Promise((resolve) => waiting.push(resolve));
  }

  /** False, with nothing taken, where there is no room now. */
  tryTake(organizationId: string): boolean {
    const share = this.#shareOf(organizationId);
    const isRoom = this.#inFlight < this.#most && share.inFlight < this.#mostOfOne;
    if (isRoom) this.#begin(share);
    else this.#dropIdle(organizationId, share);
    return isRoom;
  }

  give(organizationId: string): void {
    const share = this.#shares.get(organizationId)!;
    this.#inFlight--;
    share.inFlight--;
    this.#dropIdle(organizationId, share);
    this.#letIn();
  }

  #shareOf(organizationId: string): Share {
    let share = this.#shares.get(organizationId);
    if (share === undefined) {
      share = { inFlight: 0, waiting: [] };
      this.#shares.set(organizationId, share);
    }
    return share;
  }

  #dropIdle(organizationId: string, share: Share): void {
    if (share.inFlight === 0 && share.waiting.length === 0) this.#shares.delete(organizationId);
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
