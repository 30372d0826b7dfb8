import { createHmac, hkdfSync, timingSafeEqual } from "node:crypto";

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
 * (HKDF, RFC 5869), so that every instance knows it and it opens nothing else.
 */
export class DownloadLinks {
  readonly #key: Uint8Array;

  constructor(masterKey: Uint8Array) {
    this.#key = new Uint8Array(hkdfSync("sha256", masterKey, "", KEY_PURPOSE, 32));
  }

  sign(fileId: string, nowMs: number): LinkProof {
    const expires = Math.floor(nowMs / 1_000) + LINK_LIFETIME_SECONDS;
    return { expires, signature: this.#mac(fileId, expires).toString("hex") };
  }

  isValid(fileId: string, proof: LinkProof, nowMs: number): boolean {
    const given = Buffer.from(proof.signature, "hex");
    const expected = this.#mac(fileId, proof.expires);
    const isGenuine = given.length === expected.length && timingSafeEqual(given, expected);
    return isGenuine && nowMs < proof.expires * 1_000;
  }

  #mac(fileId: string, expires: number): Buffer {
    return createHmac("sha256", this.#key).update(`${fileId}\n${expires}`).digest();
  }
}
