import type { ByteBuffer } from "../lib/growing-bytes.ts";
import { tokensOfDelta } from "../lib/token-estimate.ts";
import type { Usage } from "../lib/usage.ts";
import { ProviderFailure } from "./interface.ts";

/** Of an image in a chat, where its provider reports none: what Gemini's of 1024x1024 pixels have. */
export const TOKENS_OF_IMAGE = 1_290;

/** Tokens of an answer that are none of text. */
export type MediaTokens = Pick<Usage, "imageCompletionTokens" | "audioCompletionTokens">;

/** OpenAI's sound has a token for each 50 ms, and its streams are of 16 bits at 24 kHz. */
const BYTES_OF_SOUND_TOKEN = 2_400;

/** Tokens of streamed sound of so many bytes. */
function tokensOfSound(bytes: number): number {
  return Math.ceil(bytes / BYTES_OF_SOUND_TOKEN);
}

/**
 * A streamed answer while it is relayed: takes the pieces of the provider's stream, adds what the client
 * gets to the output, as whole frames of the client's wire, and keeps count of the answer. Subclasses know
 * what a piece is: bytes of a wire that is the client's own, or typed events.
 *
 * `push` and `end` throw ProviderFailure where the stream breaks, unless the same piece brought something
 * for the client before: then the failure waits in `failure`. Behind an error that the provider reported
 * only its usage is still read.
 */
export abstract class StreamedAnswer<Piece = unknown> {
  protected readonly output: ByteBuffer;
  protected createdSeconds: number;
  protected startedChoices = 0;
  protected finishedChoices = 0;
  #reportedUsage: Usage | undefined;
  #outputTokens = 0;
  /** Those of images and of sound among them that the reported usage does not include. */
  #newImageTokens = 0;
  #newSoundTokens = 0;
  /** The output tokens that the reported usage includes. */
  #reportedTokens = 0;
  #outputBytes = 0;
  /** Those among them that were counted when they were held back, and have not come since. */
  #withheldBytes = 0;
  #events = 0;
  #hasBegun = false;
  #isDone = false;
  #failure: ProviderFailure | undefined;
  /** The provider reported an error, and more may follow it. */
  #mayGoOn = false;

  constructor(output: ByteBuffer, nowSeconds: number) {
    this.output = output;
    this.createdSeconds = nowSeconds;
  }

  /** What the provider reported, where it did, and what was counted here of the answer after that. */
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

  /** Tokens of the answer so far, counted here. */
  get outputTokens(): number {
    return this.#outputTokens;
  }

  /** Those among them that are none of text. */
  get mediaTokens(): MediaTokens {
    return mediaTokens(this.#newImageTokens, this.#newSoundTokens);
  }

  get outputBytes(): number {
    return this.#outputBytes;
  }

  /** Events that the provider has sent, of whatever kind; a comment is none. */
  get events(): number {
    return this.#events;
  }

  /** True once a choice has brought something beyond its role, or has ended. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** What the provider's stream broke with, if it did. */
  get failure(): ProviderFailure | undefined {
    return this.#failure;
  }

  /** True after an error that the provider reported, while usage may still follow it. */
  get mayReportUsage(): boolean {
    return this.#mayGoOn && this.usage?.estimated !== false;
  }

  /** True once the provider has marked the end of its stream. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** True once every choice has ended with a finish reason. */
  get hasFinished(): boolean {
    return this.finishedChoices > 0 && this.finishedChoices >= this.startedChoices;
  }

  /** True once so many choices have ended, and nothing has broken. */
  hasAnswered(choices: number): boolean {
    return this.hasFinished && this.finishedChoices >= choices && this.#failure === undefined;
  }

  /** When the answer was made, in Unix seconds. */
  get created(): number {
    return this.createdSeconds;
  }

  /** Takes a piece of the provider's stream. */
  push(piece: Piece): void {
    if (this.#failure) throw this.#failure;
    const before = this.output.length;
    try {
      this.take(piece);
    } catch (error) {
      this.#noteFailure(error);
    }
    this.#throwAtOnce(before);
  }

  /** Takes a piece that follows an error of the provider, for the usage in it. */
  pushBehindError(piece: Piece): void {
    this.take(piece);
  }

  /** The provider has closed its stream. */
  end(): void {
    if (this.#failure) throw this.#failure;
    const before = this.output.length;
    try {
      this.takeEnd();
    } catch (error) {
      this.#noteFailure(error);
    }
    this.#throwAtOnce(before);
  }

  protected abstract take(piece: Piece): void;
  /** Takes what the closed stream left unfinished. */
  protected abstract takeEnd(): void;

  protected noteEvents(events: number): void {
    this.#events += events;
  }

  protected noteBegun(): void {
    this.#hasBegun = true;
  }

  /** Counts bytes of the answer that came in one piece, and the tokens that they are: of text, unless stated. */
  protected meter(bytes: number, tokens?: number): void {
    const counted = tokens === undefined ? Math.min(bytes, this.#withheldBytes) : 0;
    this.#withheldBytes -= counted;
    if (counted > 0 && counted === bytes) return;
    this.#outputBytes += bytes - counted;
    this.#outputTokens += tokens ?? tokensOfDelta(bytes - counted);
  }

  /** Counts text that has come and is held back: with it the answer has begun, whatever leaves of it. */
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

  /** Counts sound of the answer, in bytes as they are behind the base64. */
  protected meterSound(bytes: number): void {
    const tokens = tokensOfSound(bytes);
    this.#newSoundTokens += tokens;
    this.meter(bytes, tokens);
  }

  protected get reportedUsage(): Usage | undefined {
    return this.#reportedUsage;
  }

  /** Usage of everything that has come so far, this piece included; it replaces what was reported before. */
  protected noteUsage(usage: Usage): void {
    this.#reportedUsage = usage;
    this.#reportedTokens = this.#outputTokens;
    this.#newImageTokens = 0;
    this.#newSoundTokens = 0;
  }

  /** The provider reported an error in its stream. */
  protected noteReportedError(failure: ProviderFailure): void {
    this.#failure = failure;
    this.#mayGoOn = true;
  }

  /** The provider marked the end of its stream. */
  protected noteDone(): void {
    this.#mayGoOn = false;
    this.#isDone = this.#failure === undefined;
  }

  #noteFailure(error: unknown): void {
    this.#mayGoOn = false;
    this.#failure ??=
      error instanceof ProviderFailure
        ? error
        : new ProviderFailure("unavailable", (error as Error).message, { cause: error });
  }

  #throwAtOnce(lengthBefore: number): void {
    if (this.#failure !== undefined && this.output.length === lengthBefore) throw this.#failure;
  }
}

/** Kinds that are there. */
export function mediaTokens(images: number, sound: number): MediaTokens {
  return {
    ...(images > 0 && { imageCompletionTokens: images }),
    ...(sound > 0 && { audioCompletionTokens: sound }),
  };
}
