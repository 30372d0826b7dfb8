/** Headers of every request to a provider, besides its key. */
export const JSON_HEADERS: Readonly<Record<string, string>> = {
  "content-type": "application/json",
  // Decompression costs more than the local network saves, and would need its own limit.
  "accept-encoding": "identity",
};

const CARRIED = /^[\x21-\x7e]+$/;

/** Throws an Error that does not quote the key if no header can carry the key. */
export function assertKeyIsCarried(providerId: string, apiKey: string): void {
  if (CARRIED.test(apiKey)) return;
  throw new Error(`the key of provider "${providerId}" has characters that no header can carry`);
}
