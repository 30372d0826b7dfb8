import { randomBytes } from "node:crypto";
import type { SealedSecrets } from "../../../db/queries/webhook-list.ts";
import { seal, unseal } from "../../lib/seal.ts";
import { type PreviousSecret, previousText, readPreviousText } from "./previous-secrets.ts";

const SECRET_BYTES = 32;
/** After a rotation the secret before signs too for this long. */
export const PREVIOUS_SECRET_MS = 86_400_000;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Webhook secrets: made here, encrypted at rest with the master key. */
export class WebhookSecrets {
  readonly #masterKey: Uint8Array;

  constructor(masterKey: Uint8Array) {
    this.#masterKey = masterKey;
  }

  generate(): string {
    return `whsec_${randomBytes(SECRET_BYTES).toString("base64url")}`;
  }

  seal(secret: string): Uint8Array {
    return seal(this.#masterKey, encoder.encode(secret));
  }

  /** The secrets that sign at this time, the newest first. */
  signing(sealed: SealedSecrets, nowMs: number): string[] {
    const previous = this.#previous(sealed, nowMs).map(({ secret }) => secret);
    return [this.#open(sealed.secret), ...previous];
  }

  /** To be stored as the previous secret once the present one is replaced: with it, those that still sign. */
  sealReplaced(sealed: SealedSecrets, nowMs: number, untilMs: number): Uint8Array {
    const replaced = { secret: this.#open(sealed.secret), untilMs };
    return this.seal(previousText([replaced, ...this.#previous(sealed, nowMs)]));
  }

  #previous(sealed: SealedSecrets, nowMs: number): PreviousSecret[] {
    if (sealed.previousSecret === null) return [];
    const text = this.#open(sealed.previousSecret);
    const previous = readPreviousText(text, sealed.previousSecretUntilMs ?? 0);
    return previous.filter(({ untilMs }) => nowMs < untilMs);
  }

  #open(sealed: Uint8Array): string {
    return decoder.decode(unseal(this.#masterKey, sealed));
  }
}
