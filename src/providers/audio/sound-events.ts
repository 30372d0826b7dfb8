import { EventSplitter } from "../../lib/event-splitter.ts";
import { type PieceReader, ProviderFailure } from "../interface.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { ProviderResponse } from "../transport/provider-response.ts";

/** Largest event: some seconds of uncompressed audio in base64. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** Reads the events of a stream that contains audio in base64. */
export interface SoundDecoder {
  /** Returns the audio of an event. Undefined if it has none. Throws ProviderFailure for an error event. */
  read(data: string): Uint8Array | undefined;
  /** True after the provider has reported that the audio is complete. */
  readonly isWhole: boolean;
}

/**
 * Reads the audio from a response with an event stream (SSE). Throws ProviderFailure if the stream ends before the
 * audio is complete.
 */
export function soundOfEvents(response: ProviderResponse, decoder: SoundDecoder): PieceReader {
  const bytes = response.reader?.() ?? response.body?.getReader();
  if (bytes === undefined) throw brokenAnswer("an empty body");
  return new SoundEventReader(bytes, decoder);
}

class SoundEventReader implements PieceReader {
  readonly #bytes: PieceReader;
  readonly #decoder: SoundDecoder;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  #isOver = false;

  constructor(bytes: PieceReader, decoder: SoundDecoder) {
    this.#bytes = bytes;
    this.#decoder = decoder;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  async read(): Promise<{ done: boolean; value?: Uint8Array }> {
    while (!this.#isOver) {
      const { done, value } = await this.#bytes.read();
      const sound = this.#soundOf(done ? undefined : value);
      if (done) this.#end();
      if (sound.length > 0) return { done: false, value: sound };
    }
    return { done: true };
  }

  cancel(): Promise<void> {
    this.#isOver = true;
    return this.#bytes.cancel();
  }

  #soundOf(bytes: Uint8Array | undefined): Uint8Array {
    const sounds: Uint8Array[] = [];
    const take = (data: string) => {
      // Some proxies end every stream like OpenAI does.
      if (data === "[DONE]") return;
      const sound = this.#decoder.read(data);
      if (sound !== undefined) sounds.push(sound);
    };
    try {
      if (bytes === undefined) this.#splitter.end(take);
      else this.#splitter.push(bytes, take);
    } catch (error) {
      this.cancel().catch(() => undefined);
      throw error;
    }
    return sounds.length === 1 ? sounds[0]! : new Uint8Array(Buffer.concat(sounds));
  }

  #end(): void {
    this.#isOver = true;
    if (!this.#decoder.isWhole) {
      throw new ProviderFailure("unavailable", "the provider's sound broke off");
    }
  }
}

const PIECE_BYTES = 65_536;

/** Returns complete audio in smaller pieces. */
export function wholeSound(sound: Uint8Array): PieceReader {
  let at = 0;
  return {
    async read() {
      if (at >= sound.length) return { done: true };
      const value = sound.subarray(at, at + PIECE_BYTES);
      at += PIECE_BYTES;
      return { done: false, value };
    },
    async cancel() {
      at = sound.length;
    },
  };
}
