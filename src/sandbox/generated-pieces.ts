import { yieldToEventLoop } from "../lib/yield-to-event-loop.ts";
import type { PieceReader } from "../providers/interface.ts";
import { aborted } from "./wait.ts";

/**
 * Reads the pieces of a generator one at a time, so that the generator never works ahead of its reader.
 * Returns to the event loop between two pieces. Rejects with ProviderFailure "aborted" once the call is
 * aborted.
 */
export class GeneratedPieces<Piece> implements PieceReader<Piece> {
  readonly #pieces: AsyncGenerator<Piece, void>;
  readonly #signal: AbortSignal;
  readonly #cancelled = new AbortController();
  #isOver = false;

  /** @param make receives a signal that also aborts if the reader is cancelled */
  constructor(make: (stop: AbortSignal) => AsyncGenerator<Piece, void>, signal: AbortSignal) {
    this.#signal = signal;
    this.#pieces = make(AbortSignal.any([signal, this.#cancelled.signal]));
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  async read(): Promise<{ done: boolean; value?: Piece | undefined }> {
    await yieldToEventLoop();
    if (this.#signal.aborted) throw aborted(this.#signal);
    const { done = false, value } = await this.#pieces.next();
    if (done) this.#isOver = true;
    return done ? { done } : { done, value: value as Piece };
  }

  async cancel(): Promise<void> {
    this.#cancelled.abort();
    await this.#pieces.return().catch(() => {});
  }
}
