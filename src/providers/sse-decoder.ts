import { EventSplitter } from "../lib/event-splitter.ts";
import type { ChatEvent } from "./interface.ts";
import type { StreamDecoder } from "./typed-stream-reader.ts";

/** Decodes a stream of server-sent events (SSE). A subclass reads the data of one event. */
export abstract class SseDecoder<Event extends { readonly type: string } = ChatEvent>
  implements StreamDecoder<Event>
{
  /** True after the event that ends the answer. Later events are skipped. */
  protected hasEnded = false;
  readonly #splitter: EventSplitter;
  /** The events of the current piece. */
  #events: Event[] = [];

  /** @param maxEventBytes size of the largest event; a larger one means that the provider is broken */
  constructor(maxEventBytes: number) {
    this.#splitter = new EventSplitter(maxEventBytes);
  }

  get isOver(): boolean {
    return this.hasEnded;
  }

  push(bytes: Uint8Array, events: Event[]): void {
    this.#events = events;
    this.#splitter.push(bytes, this.#onData);
  }

  end(events: Event[]): void {
    this.#events = events;
    this.#splitter.end(this.#onData);
  }

  /** Appends the events of an event's data, whose characters are UTF-8 bytes. */
  protected abstract take(data: string, events: Event[]): void;

  readonly #onData = (data: string): void => {
    // Some proxies end every stream with OpenAI's end marker.
    if (!this.isOver && data !== "[DONE]") this.take(data, this.#events);
  };
}
