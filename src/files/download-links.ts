import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import type { Keyring } from "../lib/keyring.ts";

/** Spec 8. */
export const LINK_LIFETIME_SECONDS = 60 * 60;
const KEY_PURPOSE = "model-gateway file download links";

export interface LinkProof {
  /** Unix seconds. */
  readonly expires: number;
  /** Hex. */
  readonly signature: string;
}

/**
 * Signs downloads that need no API key (HMAC-SHA256), with a key of its own that comes from the master key
 * (HKDF, RFC 5869), so that every instance knows it and it opens nothing else. What any known master key
 * signed is valid.
 */
export class DownloadLinks {
  readonly #keyring: Keyring;
  /** By the master key that each comes from. */
  readonly #signingKeys = new Map<Uint8Array, Uint8Array>();

  constructor(keyring: Keyring) {
    this.#keyring = keyring;
  }

  sign(fileId: string, nowMs: number): LinkProof {
    const expires = Math.floor(nowMs / 1_000) + LINK_LIFETIME_SECONDS;
    const signature = this.#mac(this.#keyring.sealingKey, fileId, expires).toString("hex");
    return { expires, signature };
  }

  isValid(fileId: string, proof: LinkProof, nowMs: number): boolean {
    const given = Buffer.from(proof.signature, "hex");
    const isGenuine = this.#keyring.keys.some((masterKey) => {
      const expected = this.#mac(masterKey, fileId, proof.expires);
      return given.length === expected.length && timingSafeEqual(given, expected);
    });
    return isGenuine && nowMs < proof.expires * 1_000;
  }

  #mac(masterKey: Uint8Array, fileId: string, expires: number): Buffer {
    const key = this.#signingKey(masterKey);
    return createHmac("sha256", key).update(`${fileId}\n${expires}`).digest();
  }

  #signingKey(masterKey: Uint8Array): Uint8Array {
    const known = this.#signingKeys.get(masterKey);
    if (known !== undefined) return known;
    const key = new Uint8Array(hkdfSync("sha256", masterKey, "", KEY_PURPOSE, 32));
    this.#signingKeys.set(masterKey, key);
    return key;
  }
}
