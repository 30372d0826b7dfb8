import type { Clock } from "../lib/clock.ts";
import { type ChatEvent, type PieceReader, ProviderFailure } from "./interface.ts";

/** An event of some kind of stream; one of each kind is `{ type: "error", failure: ProviderFailure }`. */
interface StreamEvent {
  readonly type: string;
}

/** How long the rest of a stream may take behind its last event before its connection is dropped. */
const DRAIN_MS = 1_000;

/** Turns the bytes of one streamed answer into events. Both methods throw where the stream is broken. */
export interface StreamDecoder<Event extends StreamEvent = ChatEvent> {
  /** Adds the events that this piece completes. */
  push(bytes: Uint8Array, events: Event[]): void;
  /** Adds what the closed stream left: an event without its line end counts. */
  end(events: Event[]): void;
  /** True once the provider has marked the end of its answer; nothing is pushed after that. */
  readonly isOver: boolean;
}

/**
 * Reads a streamed answer as typed events. A broken stream ends with an error event behind what came before it,
 * which is still an answer. Behind the end of an answer the connection is read to its end in the background, so
 * that it can be used again.
 */
export class TypedStreamReader<Event extends StreamEvent = ChatEvent>
  implements PieceReader<readonly Event[]>
{
  readonly #bytes: PieceReader;
  readonly #decoder: StreamDecoder<Event>;
  readonly #clock: Clock;
  #isOver = false;

  constructor(bytes: PieceReader, decoder: StreamDecoder<Event>, clock: Clock) {
    this.#bytes = bytes;
    this.#decoder = decoder;
    this.#clock = clock;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  take(): readonly Event[] | undefined {
    if (this.#isOver) return undefined;
    const bytes = this.#bytes.take?.();
    return bytes === undefined ? undefined : this.#eventsOf(bytes);
  }

  async read(): Promise<{ done: boolean; value?: readonly Event[] }> {
    if (this.#isOver) return { done: true };
    const { done, value } = await this.#bytes.read();
    if (!done && value !== undefined) return { done: false, value: this.#eventsOf(value) };
    this.#isOver = true;
    const rest: Event[] = [];
    try {
      this.#decoder.end(rest);
    } catch (error) {
      rest.push(errorEvent(error) as StreamEvent as Event);
    }
    return rest.length === 0 ? { done: true } : { done: false, value: rest };
  }

  cancel(): Promise<void> {
    this.#isOver = true;
    return this.#bytes.cancel();
  }

  #eventsOf(bytes: Uint8Array): readonly Event[] {
    const events: Event[] = [];
    try {
      this.#decoder.push(bytes, events);
    } catch (error) {
      events.push(errorEvent(error) as StreamEvent as Event);
      this.cancel().catch(() => undefined);
      return events;
    }
    if (this.#decoder.isOver) {
      this.#isOver = true;
      void this.#drain();
    }
    return events;
  }

  async #drain(): Promise<void> {
    const stopTimer = this.#clock.after(DRAIN_MS, () => {
      this.#bytes.cancel().catch(() => undefined);
    });
    try {
      while (!(await this.#bytes.read()).done);
    } catch {
      // A connection that breaks behind the last event has said everything.
    } finally {
      stopTimer();
    }
  }
}

function errorEvent(error: unknown): { type: "error"; failure: ProviderFailure } {
  const failure =
    error instanceof ProviderFailure
      ? error
      : new ProviderFailure("unavailable", (error as Error).message, { cause: error });
  return { type: "error", failure };
}
