import type { PieceReader } from "../interface.ts";
import type { Speech, SpeechCall, SpeechFormat } from "../media.ts";
import { brokenAnswer, failureOfThrown } from "../transport/call-failures.ts";
import { SOUND_TYPES } from "./sound-answer.ts";

/** Samples per second of OpenAI's `pcm`: 16 bits, little-endian, one channel. */
export const PCM_RATE = 24_000;
const SAMPLE_BYTES = 2;

/**
 * Returns the header of a WAV file of such samples with unknown length. Both lengths have the largest value, which
 * players take as "to the end".
 */
function wavHeading(rate = PCM_RATE): Uint8Array {
  const heading = Buffer.alloc(44);
  heading.write("RIFF", 0, "latin1");
  heading.writeUInt32LE(0xffff_ffff, 4);
  heading.write("WAVEfmt ", 8, "latin1");
  heading.writeUInt32LE(16, 16);
  heading.writeUInt16LE(1, 20);
  heading.writeUInt16LE(1, 22);
  heading.writeUInt32LE(rate, 24);
  heading.writeUInt32LE(rate * SAMPLE_BYTES, 28);
  heading.writeUInt16LE(SAMPLE_BYTES, 32);
  heading.writeUInt16LE(SAMPLE_BYTES * 8, 34);
  heading.write("data", 36, "latin1");
  heading.writeUInt32LE(0xffff_ffff, 40);
  return new Uint8Array(heading);
}

/** Returns the header to send before bare samples. Undefined if the format has no header. */
export function headingOf(format: SpeechFormat): Uint8Array | undefined {
  return format === "wav" ? wavHeading() : undefined;
}

type SoundCall = Pick<SpeechCall, "format" | "abortNotice" | "signal">;

/** Returns speech made of pieces of audio, with a header if the provider sends none. */
export function speechOf(
  pieces: PieceReader,
  call: SoundCall,
  usage: Speech["usage"] = () => undefined,
  heading?: Uint8Array,
): Speech {
  const reader = new GeneratedAudioReader(pieces, call, heading);
  return { contentType: SOUND_TYPES[call.format], reader: () => reader, usage };
}

/** Reads pieces of audio. Throws ProviderFailure if there are none, or if the connection breaks. */
class GeneratedAudioReader implements PieceReader {
  readonly #pieces: PieceReader;
  readonly #call: SoundCall;
  #heading: Uint8Array | undefined;
  #isOver = false;
  #hasSound = false;

  constructor(pieces: PieceReader, call: SoundCall, heading: Uint8Array | undefined) {
    this.#pieces = pieces;
    this.#call = call;
    this.#heading = heading;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  take(): Uint8Array | undefined {
    if (this.#isOver) return undefined;
    const piece = this.#pieces.take?.();
    return piece === undefined || piece.length === 0 ? undefined : this.#withHeading(piece);
  }

  async read(): Promise<{ done: boolean; value?: Uint8Array }> {
    try {
      while (!this.#isOver) {
        const { done, value } = await this.#pieces.read();
        if (done) this.#isOver = true;
        else if (value !== undefined && value.length > 0) {
          return { done: false, value: this.#withHeading(value) };
        }
      }
    } catch (error) {
      this.#isOver = true;
      throw failureOfThrown(error, this.#call.abortNotice ?? this.#call.signal);
    }
    if (!this.#hasSound) throw brokenAnswer("no sound");
    return { done: true };
  }

  cancel(): Promise<void> {
    this.#isOver = true;
    return this.#pieces.cancel();
  }

  #withHeading(piece: Uint8Array): Uint8Array {
    this.#hasSound = true;
    const heading = this.#heading;
    if (heading === undefined) return piece;
    this.#heading = undefined;
    return new Uint8Array(Buffer.concat([heading, piece]));
  }
}
