import type { ByteBuffer } from "../lib/byte-buffer.ts";
import { tokensOfDelta } from "../lib/token-estimate.ts";
import type { Usage } from "../lib/usage.ts";
import { ProviderFailure } from "./interface.ts";

/** Tokens of an image in a chat if the provider reports none: the count of a 1024x1024 image at Gemini. */
export const TOKENS_OF_IMAGE = 1_290;

/** Tokens of an answer that are not text. */
export type MediaTokens = Pick<Usage, "imageCompletionTokens" | "audioCompletionTokens">;

/** OpenAI's audio has one token for each 50 ms. Streams have 16 bits at 24 kHz. */
const BYTES_OF_SOUND_TOKEN = 2_400;

/** Returns the tokens of streamed audio of a length in bytes. */
function tokensOfSound(bytes: number): number {
  return Math.ceil(bytes / BYTES_OF_SOUND_TOKEN);
}

/**
 * A streamed answer that is being relayed. It takes the pieces of the provider's stream, appends whole frames in the
 * client's format to the output, and counts the answer. Subclasses define a piece: bytes in the client's format, or
 * typed events.
 *
 * `push` and `end` throw ProviderFailure if the stream breaks. If the same piece also added output for the client, they
 * do not throw, and the failure is in `failure`. After an error that the provider reported, only usage is read.
 */
export abstract class StreamedAnswer<Piece = unknown> {
  protected readonly output: ByteBuffer;
  protected createdSeconds: number;
  protected startedChoices = 0;
  protected finishedChoices = 0;
  #reportedUsage: Usage | undefined;
  #outputTokens = 0;
  /** Image and audio tokens within `#outputTokens` that the reported usage does not include. */
  #newImageTokens = 0;
  #newSoundTokens = 0;
  /** The output tokens that the reported usage includes. */
  #reportedTokens = 0;
  #outputBytes = 0;
  /** Bytes within `#outputBytes` that were counted when they were withheld, and have not been sent since. */
  #withheldBytes = 0;
  #events = 0;
  #hasBegun = false;
  #isDone = false;
  #failure: ProviderFailure | undefined;
  /** The provider reported an error, and usage can still follow. */
  #usageMayFollow = false;

  constructor(output: ByteBuffer, nowSeconds: number) {
    this.output = output;
    this.createdSeconds = nowSeconds;
  }

  /**
   * The usage that the provider reported, plus the gateway's count of the answer since. Undefined if the provider
   * reported none.
   */
  get usage(): Usage | undefined {
    const usage = this.#reportedUsage;
    const newTokens = this.#outputTokens - this.#reportedTokens;
    if (usage === undefined || newTokens === 0) return usage;
    const images = (usage.imageCompletionTokens ?? 0) + this.#newImageTokens;
    const sound = (usage.audioCompletionTokens ?? 0) + this.#newSoundTokens;
    return {
      ...usage,
      completionTokens: usage.completionTokens + newTokens,
      estimated: true,
      ...mediaTokens(images, sound),
    };
  }

  /** Tokens of the answer so far, counted by the gateway. */
  get outputTokens(): number {
    return this.#outputTokens;
  }

  /** Image and audio tokens within `outputTokens` that the reported usage does not include. */
  get mediaTokens(): MediaTokens {
    return mediaTokens(this.#newImageTokens, this.#newSoundTokens);
  }

  get outputBytes(): number {
    return this.#outputBytes;
  }

  /** Number of events that the provider has sent, of any kind. Comments do not count. */
  get events(): number {
    return this.#events;
  }

  /** True after a choice has brought more than its role, or has ended. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** The failure that broke the provider's stream, if any. */
  get failure(): ProviderFailure | undefined {
    return this.#failure;
  }

  /** True after an error that the provider reported, while usage can still follow it. */
  get mayReportUsage(): boolean {
    return this.#usageMayFollow && this.usage?.estimated !== false;
  }

  /** True after the provider has marked the end of its stream. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** True if every choice has a finish reason. */
  get hasFinished(): boolean {
    return this.finishedChoices > 0 && this.finishedChoices >= this.startedChoices;
  }

  /** Returns true if at least `choices` choices have ended and the stream has not failed. */
  hasAnswered(choices: number): boolean {
    return this.hasFinished && this.finishedChoices >= choices && this.#failure === undefined;
  }

  /** Time when the answer was created, in Unix seconds. */
  get created(): number {
    return this.createdSeconds;
  }

  /** Processes a piece of the provider's stream. */
  push(piece: Piece): void {
    if (this.#failure) throw this.#failure;
    const before = this.output.length;
    try {
      this.take(piece);
    } catch (error) {
      this.#noteFailure(error);
    }
    this.#throwIfNothingAdded(before);
  }

  /** Processes a piece after an error that the provider reported, for the usage in it. */
  pushAfterError(piece: Piece): void {
    this.take(piece);
  }

  /** Processes the end of the provider's stream. */
  end(): void {
    if (this.#failure) throw this.#failure;
    const before = this.output.length;
    try {
      this.takeEnd();
    } catch (error) {
      this.#noteFailure(error);
    }
    this.#throwIfNothingAdded(before);
  }

  protected abstract take(piece: Piece): void;
  /** Processes the data that the closed stream left unfinished. */
  protected abstract takeEnd(): void;

  protected noteEvents(events: number): void {
    this.#events += events;
  }

  protected noteBegun(): void {
    this.#hasBegun = true;
  }

  /** Counts bytes of the answer that came in one piece, and their tokens. Without `tokens` they count as text. */
  protected meter(bytes: number, tokens?: number): void {
    const counted = tokens === undefined ? Math.min(bytes, this.#withheldBytes) : 0;
    this.#withheldBytes -= counted;
    if (counted > 0 && counted === bytes) return;
    this.#outputBytes += bytes - counted;
    this.#outputTokens += tokens ?? tokensOfDelta(bytes - counted);
  }

  /** Counts text that is held back. The answer has begun, even if the client gets none of it. */
  protected noteWithheld(bytes: number): void {
    this.noteBegun();
    this.meter(bytes, tokensOfDelta(bytes));
    this.#withheldBytes += bytes;
  }

  /** Counts an image of the answer. */
  protected meterImage(): void {
    this.#newImageTokens += TOKENS_OF_IMAGE;
    this.meter(0, TOKENS_OF_IMAGE);
  }

  /** Counts audio of the answer, in bytes after base64 decoding. */
  protected meterSound(bytes: number): void {
    const tokens = tokensOfSound(bytes);
    this.#newSoundTokens += tokens;
    this.meter(bytes, tokens);
  }

  protected get reportedUsage(): Usage | undefined {
    return this.#reportedUsage;
  }

  /** Records the usage of everything so far, including this piece. It replaces earlier reports. */
  protected noteUsage(usage: Usage): void {
    this.#reportedUsage = usage;
    this.#reportedTokens = this.#outputTokens;
    this.#newImageTokens = 0;
    this.#newSoundTokens = 0;
  }

  /** Records an error that the provider reported in its stream. */
  protected noteReportedError(failure: ProviderFailure): void {
    this.#failure = failure;
    this.#usageMayFollow = true;
  }

  /** Records that the provider marked the end of its stream. */
  protected noteDone(): void {
    this.#usageMayFollow = false;
    this.#isDone = this.#failure === undefined;
  }

  #noteFailure(error: unknown): void {
    this.#usageMayFollow = false;
    this.#failure ??=
      error instanceof ProviderFailure
        ? error
        : new ProviderFailure("unavailable", (error as Error).message, { cause: error });
  }

  #throwIfNothingAdded(lengthBefore: number): void {
    if (this.#failure !== undefined && this.output.length === lengthBefore) throw this.#failure;
  }
}

/** Returns the kinds with at least one token. */
export function mediaTokens(images: number, sound: number): MediaTokens {
  return {
    ...(images > 0 && { imageCompletionTokens: images }),
    ...(sound > 0 && { audioCompletionTokens: sound }),
  };
}
