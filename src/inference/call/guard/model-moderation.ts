import { clientClosed, GatewayError } from "../../../lib/errors.ts";
import { FairSemaphore } from "../../../lib/fair-share.ts";
import type { Provider } from "../../../providers/interface.ts";
import type { Moderation } from "./call-guard.ts";

/** The timeout for one text, including its wait in the queue. */
const TIMEOUT_MS = 10_000;
const MAX_CALLS = 32;
const MAX_CALLS_OF_ORGANIZATION = 8;
const MAX_WAITING = 512;
const MAX_WAITING_OF_ORGANIZATION = 128;
const MAX_CHARACTERS = 1_000_000;
/**
 * Characters that a model reads in one piece. Pieces overlap, so that each sentence is complete in one of
 * them.
 */
const PIECE_CHARACTERS = 8_000;
const OVERLAP_CHARACTERS = 400;
const PIECES_PER_CALL = 16;

/** Returns a semaphore that limits the calls of moderation models. */
export function createModerationSemaphore(): FairSemaphore {
  return new FairSemaphore({
    most: MAX_CALLS,
    mostOfOne: MAX_CALLS_OF_ORGANIZATION,
    maxWaiting: MAX_WAITING,
    maxWaitingOfOne: MAX_WAITING_OF_ORGANIZATION,
    refusal: () => undecided("too many texts are waiting for a decision"),
  });
}

/** Moderation by a provider's moderation model, paid with the operator's key. */
export class ModelModeration implements Moderation {
  readonly #moderate: NonNullable<Provider["moderate"]>;
  readonly #model: string;
  readonly #calls = createModerationSemaphore();

  /** @param model the provider's name of the model */
  constructor(moderate: NonNullable<Provider["moderate"]>, model: string) {
    this.#moderate = moderate;
    this.#model = model;
  }

  async passes(owner: string, text: string, signal: AbortSignal): Promise<boolean> {
    if (text.length > MAX_CHARACTERS) {
      throw undecided(`the text has more than ${MAX_CHARACTERS} characters`);
    }
    const inTime = AbortSignal.timeout(TIMEOUT_MS);
    const either = AbortSignal.any([signal, inTime]);
    try {
      return await this.#calls.run(owner, () => this.#decide(text, either), either);
    } catch (error) {
      if (signal.aborted) throw clientClosed(error);
      if (!inTime.aborted && isUndecided(error)) throw error;
      const why = inTime.aborted ? "the moderation model timed out" : "the moderation model failed";
      throw undecided(why, error);
    }
  }

  async #decide(text: string, signal: AbortSignal): Promise<boolean> {
    const pieces = piecesOf(text);
    for (let at = 0; at < pieces.length; at += PIECES_PER_CALL) {
      signal.throwIfAborted();
      const input = pieces.slice(at, at + PIECES_PER_CALL);
      const { results } = await this.#moderate({ model: this.#model, input, signal });
      if (results.some(({ flagged }) => flagged)) return false;
    }
    return true;
  }
}

function piecesOf(text: string): string[] {
  const pieces: string[] = [];
  for (let at = 0; at === 0 || at + OVERLAP_CHARACTERS < text.length; ) {
    pieces.push(text.slice(at, at + PIECE_CHARACTERS).toWellFormed());
    at += PIECE_CHARACTERS - OVERLAP_CHARACTERS;
  }
  return pieces;
}

function isUndecided(error: unknown): boolean {
  return error instanceof GatewayError && error.code === "moderation_unavailable";
}

function undecided(why: string, cause?: unknown): GatewayError {
  const message = `A guardrail's moderation could not decide about the text, so the text is blocked: ${why}.`;
  return new GatewayError("moderation_unavailable", message, { retryAfterSeconds: 5, cause });
}
