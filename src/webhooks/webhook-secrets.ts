import { randomBytes } from "node:crypto";
import type { Seal } from "../../db/queries/master-key.ts";
import type { SealedSecrets } from "../../db/queries/webhooks.ts";
import type { Keyring } from "../lib/keyring.ts";

const SECRET_BYTES = 32;
/** After a rotation the secret before signs too for this long. */
export const PREVIOUS_SECRET_MS = 86_400_000;

const encoder = new TextEncoder();
/** A secret may begin with a byte order mark like with any other character. */
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Webhook secrets: made here, encrypted at rest with the master key. */
export class WebhookSecrets {
  readonly #keyring: Keyring;

  constructor(keyring: Keyring) {
    this.#keyring = keyring;
  }

  generate(): string {
    return `whsec_${randomBytes(SECRET_BYTES).toString("base64url")}`;
  }

  /** What seals it once the transaction that writes it knows the key. */
  sealing(secret: string): Seal {
    return (keyId) => this.#keyring.sealUnder(keyId, encoder.encode(secret));
  }

  /** The secrets that sign at this time, the newest first. */
  signing(sealed: SealedSecrets, nowMs: number): string[] {
    const previous = this.#previous(sealed, nowMs).map(({ secret }) => secret);
    return [this.#open(sealed.secret), ...previous];
  }

  /** To be stored as the previous secret once the present one is replaced: with it, those that still sign. */
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

/** A secret that a webhook had before, and until when it signs too. */
interface PreviousSecret {
  readonly secret: string;
  readonly untilMs: number;
}

/** With more rotations than these within a day the oldest secret's time ends early. */
const MAX_PREVIOUS = 8;
/** No secret holds one: request bodies do not. */
const SEPARATOR = "\0";

/**
 * Previous secrets, the newest first, as the one text that is sealed. The first stands alone, its time
 * is stored in a column; each further one has its time in front: `first NUL time:second NUL time:third`.
 */
function previousText(previous: readonly PreviousSecret[]): string {
  const [first, ...further] = previous.slice(0, MAX_PREVIOUS);
  return [first!.secret, ...further.map(({ secret, untilMs }) => `${untilMs}:${secret}`)].join(
    SEPARATOR,
  );
}

/** What `previousText` made of them. */
function readPreviousText(text: string, firstUntilMs: number): PreviousSecret[] {
  const [first, ...further] = text.split(SEPARATOR);
  return [
    { secret: first!, untilMs: firstUntilMs },
    ...further.map((one) => {
      const end = one.indexOf(":");
      return { secret: one.slice(end + 1), untilMs: Number(one.slice(0, end)) };
    }),
  ];
}
