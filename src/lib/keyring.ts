import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";

export const MASTER_KEY_BYTES = 32;
const ID_PURPOSE = "model-gateway master key id";
const ID_BYTES = 8;

/**
 * The name of a master key in one database, hex: derived from both (HKDF, RFC 5869), so that it tells
 * nothing of the key, nor where else it is in use.
 */
export function masterKeyId(key: Uint8Array, salt: Uint8Array): string {
  return Buffer.from(hkdfSync("sha256", key, salt, ID_PURPOSE, ID_BYTES)).toString("hex");
}

/** The master keys that this process knows: one seals, each opens. */
export class Keyring {
  readonly #keys: ReadonlyMap<string, Uint8Array>;
  #sealingId: string;

  /** Throws where the one that seals is not among the keys. */
  constructor(salt: Uint8Array, keys: readonly Uint8Array[], sealingId: string) {
    this.#keys = new Map(keys.map((key) => [masterKeyId(key, salt), key]));
    this.#sealingId = sealingId;
    this.#key(sealingId);
  }

  get ids(): readonly string[] {
    return [...this.#keys.keys()];
  }

  get sealingId(): string {
    return this.#sealingId;
  }

  get sealingKey(): Uint8Array {
    return this.#key(this.#sealingId);
  }

  get keys(): readonly Uint8Array[] {
    return [...this.#keys.values()];
  }

  /** The database names another key that seals. One that is not known here is passed over. */
  noteSealing(id: string): void {
    if (this.#keys.has(id)) this.#sealingId = id;
  }

  /** Seals under the key that the database names. Throws where it is not known here. */
  sealUnder(id: string, plain: Uint8Array): Uint8Array {
    return seal(this.#key(id), plain);
  }

  /** Opens what any of the keys sealed; undefined where none did, or a byte was changed. */
  tryOpen(sealed: Uint8Array): { readonly plain: Uint8Array; readonly keyId: string } | undefined {
    for (const [keyId, key] of this.#keys) {
      try {
        return { plain: unseal(key, sealed), keyId };
      } catch {
        // Another one may open it.
      }
    }
    return undefined;
  }

  /** The same. Throws where none did. */
  open(sealed: Uint8Array): Uint8Array {
    const opened = this.tryOpen(sealed);
    if (opened === undefined) throw new Error("no known master key opens a sealed value");
    return opened.plain;
  }

  #key(id: string): Uint8Array {
    const key = this.#keys.get(id);
    if (key !== undefined) return key;
    throw new Error(`the database is sealed with the master key ${id}, which is not known here`);
  }
}

const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Encrypts what is kept at rest (AES-256-GCM, NIST SP 800-38D): nonce, tag and ciphertext in one piece. */
export function seal(masterKey: Uint8Array, plain: Uint8Array): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", masterKey, nonce);
  const sealed = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
}

/** Opens what `seal` made. Throws where the key is another one or a byte was changed. */
export function unseal(masterKey: Uint8Array, sealed: Uint8Array): Uint8Array {
  const nonce = sealed.subarray(0, NONCE_BYTES);
  const tag = sealed.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
  const decipher = createDecipheriv("aes-256-gcm", masterKey, nonce, { authTagLength: TAG_BYTES });
  decipher.setAuthTag(tag);
  return Buffer.concat([
    decipher.update(sealed.subarray(NONCE_BYTES + TAG_BYTES)),
    decipher.final(),
  ]);
}
