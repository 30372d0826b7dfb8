import type { Clock } from "../../lib/clock.ts";

/** What may be delivered beyond the last durable checkpoint. */
export const MAX_AHEAD_TOKENS = 256;
export const MAX_AHEAD_MS = 1_000;
/** A new checkpoint is begun at half of that, so that delivery need not wait for it. */
const BEGIN_AHEAD_TOKENS = 128;
const BEGIN_AHEAD_MS = 500;

/** Keeps what a crash would bill close behind what was delivered. */
export class StreamCheckpoints {
  readonly #clock: Clock;
  readonly #write: () => Promise<void>;
  #durableTokens = -1;
  #seenTokens = 0;
  /** When the first token beyond the last durable checkpoint was seen. */
  #aheadSinceMs: number | undefined;
  /** The same, beyond the checkpoint that is being written. */
  #aheadOfRunningSinceMs: number | undefined;
  #running: Promise<void> | undefined;
  #runningTokens = 0;

  /** `write` makes what was received so far durable. */
  constructor(clock: Clock, write: () => Promise<void>) {
    this.#clock = clock;
    this.#write = write;
  }

  /** True where a checkpoint was asked for and it is not known what became of it. */
  get isWriting(): boolean {
    return this.#running !== undefined;
  }

  /** Resolves when a checkpoint covers this many tokens. */
  async cover(tokens: number): Promise<void> {
    this.#seenTokens = Math.max(this.#seenTokens, tokens);
    while (this.#durableTokens < tokens) await this.#begin();
  }

  /** Resolves when an answer of this many tokens may be delivered; undefined where it may at once. */
  admit(tokens: number): Promise<void> | undefined {
    this.#seenTokens = tokens;
    if (tokens <= this.#durableTokens) return undefined;
    const nowMs = this.#clock.nowMs();
    this.#aheadSinceMs ??= nowMs;
    if (this.#running && tokens > this.#runningTokens) this.#aheadOfRunningSinceMs ??= nowMs;
    const aheadTokens = tokens - this.#durableTokens;
    if (aheadTokens > MAX_AHEAD_TOKENS || nowMs - this.#aheadSinceMs >= MAX_AHEAD_MS) {
      return this.cover(tokens);
    }
    if (aheadTokens >= BEGIN_AHEAD_TOKENS) this.#beginUnwatched();
    return undefined;
  }

  /** Begins a checkpoint where one is due although nothing new is delivered. */
  tick(nowMs: number): void {
    if (this.#aheadSinceMs === undefined || nowMs - this.#aheadSinceMs < BEGIN_AHEAD_MS) return;
    this.#beginUnwatched();
  }

  #beginUnwatched(): void {
    if (this.#running) return;
    // A failure shows again, and is reported, when delivery has to wait for a checkpoint.
    this.#begin().catch(() => {});
  }

  #begin(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  async #run(): Promise<void> {
    const tokens = this.#seenTokens;
    this.#runningTokens = tokens;
    this.#aheadOfRunningSinceMs = undefined;
    try {
      await this.#write();
      this.#durableTokens = tokens;
      this.#aheadSinceMs = this.#aheadOfRunningSinceMs;
    } finally {
      this.#running = undefined;
    }
  }
}
