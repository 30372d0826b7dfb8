import { type ParallelLimit, type ParallelSlots, reservedSlots } from "./interface.ts";

/** Slots of the calls in this process. */
export class MemorySlots implements ParallelSlots {
  readonly #used = new Map<string, number>();
  #onFree: (limitId: string) => void = () => {};

  take(limits: readonly ParallelLimit[]): boolean {
    for (const limit of limits) {
      if (this.used(limit.id) >= limit.max - reservedSlots(limit)) return false;
    }
    this.add(limits);
    return true;
  }

  release(limits: readonly ParallelLimit[]): void {
    for (const { id } of limits) {
      const left = this.used(id) - 1;
      if (left > 0) this.#used.set(id, left);
      else this.#used.delete(id);
    }
    for (const { id } of limits) this.#onFree(id);
  }

  onFree(listener: (limitId: string) => void): void {
    this.#onFree = listener;
  }

  async begin(): Promise<void> {}

  /** Returns the number of calls of this process within a limit. */
  used(limitId: string): number {
    return this.#used.get(limitId) ?? 0;
  }

  /** The ids of the limits within which calls of this process run. */
  get usedIds(): readonly string[] {
    return [...this.#used.keys()];
  }

  /** Counts a call that was admitted elsewhere, whatever the limits. */
  add(limits: readonly ParallelLimit[]): void {
    for (const { id } of limits) this.#used.set(id, this.used(id) + 1);
  }
}
