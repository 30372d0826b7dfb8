import type { Clock } from "../lib/clock.ts";
import { drainInBackground } from "./drain.ts";
import { type ChatEvent, type PieceReader, ProviderFailure } from "./interface.ts";

/** An event of any kind of stream. Each kind includes `{ type: "error", failure: ProviderFailure }`. */
interface StreamEvent {
  readonly type: string;
}

/** Converts the bytes of one streamed answer to events. Both methods throw if the stream is broken. */
export interface StreamDecoder<Event extends StreamEvent = ChatEvent> {
  /** Appends the events that this piece completes. */
  push(bytes: Uint8Array, events: Event[]): void;
  /** Appends the remaining events of the closed stream. An event without its line end counts. */
  end(events: Event[]): void;
  /** True after the provider has marked the end of its answer. Nothing is pushed after that. */
  readonly isOver: boolean;
}

/**
 * Reads a streamed answer as typed events. A broken stream ends with an error event; the events before it are still
 * part of the answer. After the end of an answer the connection is read to its end in the background, so that it can be
 * reused.
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
      drainInBackground(this.#bytes, this.#clock);
    }
    return events;
  }
}

function errorEvent(error: unknown): { type: "error"; failure: ProviderFailure } {
  const failure =
    error instanceof ProviderFailure
      ? error
      : new ProviderFailure("unavailable", (error as Error).message, { cause: error });
  return { type: "error", failure };
}
