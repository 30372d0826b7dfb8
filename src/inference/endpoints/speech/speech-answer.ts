import type { ByteBuffer } from "../../../lib/growing-bytes.ts";
import type { Speech, SpeechFormat } from "../../../providers/media.ts";
import { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { brokenAnswer } from "../../../providers/transport/call-failures.ts";
import { SoundLength } from "./sound-length.ts";

/** OpenAI states 0.015 USD for a minute of speech at 12 USD for a million tokens. */
export const TOKENS_A_SECOND = 21;

interface SpeechAnswerOptions {
  readonly speech: Speech;
  readonly format: SpeechFormat;
  /** Whether its charge grows with the sound; else the first piece settles it. */
  readonly growsWithSound: boolean;
  /** Adds to the output what the client gets of a piece. */
  readonly write: (piece: Uint8Array, output: ByteBuffer) => void;
}

/** Speech on its way to a client: pieces of sound, metered by the time that they take to play. */
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
    // One that does not grow needs no checkpoint but the first.
    const tokens = growsWithSound ? tokensOfSound(this.length) : 1;
    this.meter(piece.length, tokens - this.outputTokens);
    write(piece, this.output);
  }

  protected override takeEnd(): void {
    if (this.startedChoices === 0) throw brokenAnswer("no sound");
    this.finishedChoices = 1;
    const usage = this.#options.speech.usage();
    if (usage !== undefined) this.noteUsage(usage);
  }
}

/** At least one, and as many as OpenAI's models make of it. */
export function tokensOfSound({ ms }: SoundLength): number {
  return Math.max(1, Math.ceil((ms * TOKENS_A_SECOND) / 1_000));
}

const TEXT_BEGINNING = /^(?:\xef\xbb\xbf)?\s*(?:<[!?a-z]|\{\s*["}]|\[\s*[{["\]])/i;
const LOOKED_AT_BYTES = 64;

/**
 * Throws ProviderFailure where the first bytes are JSON or HTML, whatever type they came with: no heading of
 * a format begins so. PCM has none, and may begin with anything.
 */
export function assertSound(first: Uint8Array, format: SpeechFormat): void {
  if (format === "pcm") return;
  const beginning = Buffer.from(first.subarray(0, LOOKED_AT_BYTES)).toString("latin1");
  if (TEXT_BEGINNING.test(beginning)) throw brokenAnswer("text in the place of sound");
}
