import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";

export const MASTER_KEY_BYTES = 32;
const ID_PURPOSE = "model-gateway master key id";
const ID_BYTES = 8;

/**
 * Returns the name of a master key in one database, in hexadecimal. It is derived from the key and the salt
 * (HKDF, RFC 5869), so that it reveals neither the key nor other databases that use the key.
 */
export function masterKeyId(key: Uint8Array, salt: Uint8Array): string {
  return Buffer.from(hkdfSync("sha256", key, salt, ID_PURPOSE, ID_BYTES)).toString("hex");
}

/** The master keys of this process. One of them seals, and each can open. */
export class Keyring {
  readonly #keys: ReadonlyMap<string, Uint8Array>;
  #sealingId: string;

  /** Throws if the sealing key is not among the keys. */
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

  /** Switches to another sealing key that the database names. Ignores a key that this process does not have. */
  noteSealing(id: string): void {
    if (this.#keys.has(id)) this.#sealingId = id;
  }

  /** Seals with the key that the database names. Throws if this process does not have that key. */
  sealUnder(id: string, plain: Uint8Array): Uint8Array {
    return seal(this.#key(id), plain);
  }

  /** Opens a value that one of the keys sealed. Returns undefined if none did, or if a byte was changed. */
  tryOpen(sealed: Uint8Array): { readonly plain: Uint8Array; readonly keyId: string } | undefined {
    for (const [keyId, key] of this.#keys) {
      try {
        return { plain: unseal(key, sealed), keyId };
      } catch {
        // Another key can open it.
      }
    }
    return undefined;
  }

  /** Opens a value that one of the keys sealed. Throws if none did, or if a byte was changed. */
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

/** Encrypts data at rest (AES-256-GCM, NIST SP 800-38D). Returns nonce, tag and ciphertext in one piece. */
export function seal(masterKey: Uint8Array, plain: Uint8Array): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv("aes-256-gcm", masterKey, nonce);
  const sealed = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
}

/** Decrypts a value of `seal`. Throws if another key sealed it or a byte was changed. */
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
