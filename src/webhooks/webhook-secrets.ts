import { randomBytes } from "node:crypto";
import type { Seal } from "../../db/queries/master-key.ts";
import type { SealedSecrets } from "../../db/queries/webhooks.ts";
import type { Keyring } from "../lib/keyring.ts";

const SECRET_BYTES = 32;
/** Time after a rotation during which the previous secret also signs. */
export const PREVIOUS_SECRET_MS = 86_400_000;

const encoder = new TextEncoder();
/** Keeps a byte order mark, because a secret can begin with one. */
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Generates webhook secrets and encrypts them at rest with the master key. */
export class WebhookSecrets {
  readonly #keyring: Keyring;

  constructor(keyring: Keyring) {
    this.#keyring = keyring;
  }

  generate(): string {
    return `whsec_${randomBytes(SECRET_BYTES).toString("base64url")}`;
  }

  /** Returns a function that seals the secret. The transaction that writes it names the master key. */
  sealing(secret: string): Seal {
    return (keyId) => this.#keyring.sealUnder(keyId, encoder.encode(secret));
  }

  /** Returns the secrets that sign at this time, newest first. */
  signing(sealed: SealedSecrets, nowMs: number): string[] {
    const previous = this.#previous(sealed, nowMs).map(({ secret }) => secret);
    return [this.#open(sealed.secret), ...previous];
  }

  /**
   * Seals the value of the previous-secret column when the current secret is replaced: the current secret, and
   * earlier ones that still sign.
   */
  sealingReplaced(sealed: SealedSecrets, nowMs: number, untilMs: number): Seal {
    const replaced = { secret: this.#open(sealed.secret), untilMs };
    return this.sealing(previousText([replaced, ...this.#previous(sealed, nowMs)]));
  }

  #previous(sealed: SealedSecrets, nowMs: number): PreviousSecret[] {
    if (sealed.previousSecret === null) return [];
    const text = this.#open(sealed.previousSecret);
    const previous = readPreviousText(text, sealed.previousSecretUntilMs ?? 0);
    return previous.filter(({ untilMs }) => nowMs < untilMs);
  }

  #open(sealed: Uint8Array): string {
    return decoder.decode(this.#keyring.open(sealed));
  }
}

/** A replaced secret, and the time until which it also signs. */
interface PreviousSecret {
  readonly secret: string;
  readonly untilMs: number;
}

/** Most previous secrets. After more rotations in a day, the oldest secret's time ends early. */
const MAX_PREVIOUS = 8;
/** Separates the secrets. Request bodies, and so secrets, cannot contain it. */
const SEPARATOR = "\0";

/**
 * Returns previous secrets, newest first, as one text to seal. The first has no time, because a column stores it.
 * Each further one follows its time: `first NUL time:second NUL time:third`.
 */
function previousText(previous: readonly PreviousSecret[]): string {
  const [first, ...further] = previous.slice(0, MAX_PREVIOUS);
  return [first!.secret, ...further.map(({ secret, untilMs }) => `${untilMs}:${secret}`)].join(
    SEPARATOR,
  );
}

/** Parses a text of `previousText`. */
function readPreviousText(text: string, firstUntilMs: number): PreviousSecret[] {
  const [first, ...further] = text.split(SEPARATOR);
  return [
    { secret: first!, untilMs: firstUntilMs },
    ...further.map((entry) => {
      const end = entry.indexOf(":");
      return { secret: entry.slice(end + 1), untilMs: Number(entry.slice(0, end)) };
    }),
  ];
}
