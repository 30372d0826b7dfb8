import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { Speech, SpeechFormat } from "../../../providers/media.ts";
import { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { brokenAnswer } from "../../../providers/transport/call-failures.ts";
import { SoundLength } from "./sound-length.ts";

/** Tokens per second of audio. OpenAI states 0.015 USD for a minute of speech, at 12 USD per million tokens. */
export const TOKENS_A_SECOND = 21;

interface SpeechAnswerOptions {
  readonly speech: Speech;
  readonly format: SpeechFormat;
  /** True if the charge grows with the audio. Otherwise the first piece determines the charge. */
  readonly growsWithSound: boolean;
  /** Writes a piece to the output in the client's form. */
  readonly write: (piece: Uint8Array, output: ByteBuffer) => void;
}

/** Streams speech to a client. Meters the pieces of audio by their playing time. */
export class SpeechAnswer extends StreamedAnswer<Uint8Array> {
  readonly length: SoundLength;
  readonly #options: SpeechAnswerOptions;

  constructor(output: ByteBuffer, options: SpeechAnswerOptions) {
    super(output, 0);
    this.#options = options;
    this.length = new SoundLength(options.format);
  }

  protected override take(piece: Uint8Array): void {
    if (piece.length === 0) return;
    const { format, growsWithSound, write } = this.#options;
    if (this.startedChoices === 0) assertSound(piece, format);
    this.startedChoices = 1;
    this.noteEvents(1);
    this.noteBegun();
    this.length.push(piece);
    // A charge that does not grow needs only the first checkpoint.
    const tokens = growsWithSound ? tokensOfSound(this.length) : 1;
    this.meter(piece.length, tokens - this.outputTokens);
    write(piece, this.output);
  }

  protected override takeEnd(): void {
    if (this.startedChoices === 0) throw brokenAnswer("no audio");
    this.finishedChoices = 1;
    const usage = this.#options.speech.usage();
    if (usage !== undefined) this.noteUsage(usage);
  }
}

/** Returns the tokens of the audio at the rate of OpenAI's models. At least 1. */
export function tokensOfSound({ ms }: SoundLength): number {
  return Math.max(1, Math.ceil((ms * TOKENS_A_SECOND) / 1_000));
}

const TEXT_BEGINNING = /^(?:\xef\xbb\xbf)?\s*(?:<[!?a-z]|\{\s*["}]|\[\s*[{["\]])/i;
const INSPECTED_BYTES = 64;

/**
 * Throws ProviderFailure if the first bytes are JSON or HTML, whatever their content type. No audio header
 * begins like that. PCM has no header and can begin with any bytes.
 */
export function assertSound(first: Uint8Array, format: SpeechFormat): void {
  if (format === "pcm") return;
  const beginning = Buffer.from(first.subarray(0, INSPECTED_BYTES)).toString("latin1");
  if (TEXT_BEGINNING.test(beginning)) throw brokenAnswer("text instead of audio");
}
