/** What each request of a provider's API has besides its key. */
export const JSON_HEADERS: Readonly<Record<string, string>> = {
  "content-type": "application/json",
  // Expanding costs more than the local network does, and would need a bound of its own.
  "accept-encoding": "identity",
};

const CARRIED = /^[\x21-\x7e]+$/;

/** Throws an Error that does not quote the key where no header can carry it. */
export function assertKeyIsCarried(providerId: string, apiKey: string): void {
  if (CARRIED.test(apiKey)) return;
  throw new Error(`the key of provider "${providerId}" has characters that no header can carry`);
}
