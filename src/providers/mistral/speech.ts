import { isFields } from "../../lib/json.ts";
import type { SoundDecoder } from "../audio/sound-events.ts";
import { failureInside, failureOfErrorBody } from "../openai/failure-mapping.ts";
import { AnswerRead } from "../thread-work.ts";
import { parsedAnswer } from "../transport/bounded-body.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import { eventOf } from "../transport/stream-event.ts";

/** Decoded audio in a form that passes between threads without conversion. */
export interface DecodedSound {
  readonly body: Uint8Array;
}

/** Reads `{audio_data}` of speech that was not streamed. Throws ProviderFailure if the text has none. */
export const mistralSpeech = new AnswerRead(
  import.meta.url,
  (text, { failureContext }: { readonly failureContext: FailureContext }): DecodedSound => {
    const body = parsedAnswer(text);
    const failure = failureInside(body, failureContext);
    if (failure !== undefined) throw failure;
    const data = isFields(body) ? body.audio_data : undefined;
    if (typeof data !== "string") throw brokenAnswer("JSON without audio");
    return { body: new Uint8Array(Buffer.from(data, "base64")) };
  },
);

const FLOAT_BYTES = 4;
const MAX_SAMPLE = 32_767;

/**
 * Reads `speech.audio.delta` and `speech.audio.done` (https://docs.mistral.ai/studio/audio/text-to-speech).
 * Converts Mistral's PCM of 32-bit floats at 24 kHz to OpenAI's 16-bit integers, which callers receive.
 */
export class MistralSpeechDecoder implements SoundDecoder {
  readonly #context: FailureContext;
  /** Bytes of an incomplete sample. */
  #rest: Buffer = Buffer.alloc(0);
  #isWhole = false;

  constructor(context: FailureContext) {
    this.#context = context;
  }

  get isWhole(): boolean {
    return this.#isWhole;
  }

  read(data: string): Uint8Array | undefined {
    const event = eventOf(data);
    const failure = failureInside(event, this.#context);
    if (failure !== undefined) throw failure;
    if (event.type === "error") throw failureOfErrorBody(event, this.#context);
    if (event.type === "speech.audio.done") this.#isWhole = true;
    if (typeof event.audio_data !== "string") return undefined;
    return this.#integers(Buffer.from(event.audio_data, "base64"));
  }

  #integers(bytes: Buffer): Uint8Array {
    const floats = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    const count = Math.floor(floats.length / FLOAT_BYTES);
    const integers = Buffer.alloc(count * 2);
    for (let index = 0; index < count; index++) {
      const sample = floats.readFloatLE(index * FLOAT_BYTES);
      const clamped = Number.isNaN(sample) ? 0 : Math.max(-1, Math.min(1, sample));
      integers.writeInt16LE(Math.round(clamped * MAX_SAMPLE), index * 2);
    }
    this.#rest = Buffer.from(floats.subarray(count * FLOAT_BYTES));
    return new Uint8Array(integers);
  }
}
