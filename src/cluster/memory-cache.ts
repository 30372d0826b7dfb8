import type { Clock } from "../lib/clock.ts";
import type { SharedCache } from "./interface.ts";

/** Values above it are not kept, in UTF-16 units. */
export const MAX_VALUE_LENGTH = 1_000_000;
const MAX_ENTRIES = 10_000;
const MAX_TOTAL_LENGTH = 32_000_000;

interface Entry {
  readonly value: string;
  readonly expiresAtMs: number;
}

/** The cache of a process that is the only one. Where it is full the longest unused make room. */
export class MemoryCache implements SharedCache {
  readonly #clock: Clock;
  readonly #maxEntries: number;
  readonly #maxTotalLength: number;
  /** The least recently used first. */
  readonly #entries = new Map<string, Entry>();
  #totalLength = 0;

  constructor(clock: Clock, maxEntries = MAX_ENTRIES, maxTotalLength = MAX_TOTAL_LENGTH) {
    this.#clock = clock;
    this.#maxEntries = maxEntries;
    this.#maxTotalLength = maxTotalLength;
  }

  async get(key: string): Promise<string | undefined> {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#remove(key, entry);
    if (entry.expiresAtMs <= this.#clock.nowMs()) return undefined;
    this.#add(key, entry);
    return entry.value;
  }

  async set(key: string, value: string, expiresInMs: number): Promise<void> {
    await this.delete(key);
    if (value.length > MAX_VALUE_LENGTH || expiresInMs <= 0) return;
    this.#add(key, { value, expiresAtMs: this.#clock.nowMs() + expiresInMs });
    for (const [oldest, entry] of this.#entries) {
      if (this.#entries.size <= this.#maxEntries && this.#totalLength <= this.#maxTotalLength)
        return;
      this.#remove(oldest, entry);
    }
  }

  async delete(key: string): Promise<void> {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(key, entry);
  }

  #add(key: string, entry: Entry): void {
    this.#entries.set(key, entry);
    this.#totalLength += key.length + entry.value.length;
  }

  #remove(key: string, entry: Entry): void {
    this.#entries.delete(key);
    this.#totalLength -= key.length + entry.value.length;
  }
}
