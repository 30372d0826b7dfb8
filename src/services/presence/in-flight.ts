/** Counts the requests that are being answered, streams included, so that a stop can wait for them. */
export class InFlight {
  #count = 0;
  #isDraining = false;
  #idle: (() => void)[] = [];

  get count(): number {
    return this.#count;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  begin(): void {
    this.#count++;
  }

  end(): void {
    this.#count--;
    if (this.#count === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Resolves when nothing is in flight any more, or when the time is up. */
  async drain(graceMs: number): Promise<void> {
    this.#isDraining = true;
    if (this.#count === 0) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    await Promise.race([
      new Promise<void>((resolve) => this.#idle.push(resolve)),
      new Promise<void>((resolve) => {
        timer = setTimeout(resolve, graceMs);
      }),
    ]);
    clearTimeout(timer);
  }
}
