import { GatewayError } from "../../lib/errors.ts";

/** Each holds two parts of 5 MB in memory while the store is slow. */
const MAX_UPLOADS = 64;
/** One organization cannot take all of them. */
const MAX_UPLOADS_OF_ORGANIZATION = 32;
const RETRY_AFTER_SECONDS = 5;

/** Bounds the uploads that run in this process at a time. */
export class UploadSlots {
  readonly #byOrganization = new Map<string, number>();
  #taken = 0;

  /** Throws 503 where all are taken. */
  take(organizationId: string): void {
    const own = this.#byOrganization.get(organizationId) ?? 0;
    if (this.#taken >= MAX_UPLOADS || own >= MAX_UPLOADS_OF_ORGANIZATION) {
      throw new GatewayError("overloaded", "Too many uploads are running; try again shortly.", {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    this.#taken++;
    this.#byOrganization.set(organizationId, own + 1);
  }

  free(organizationId: string): void {
    this.#taken--;
    const own = this.#byOrganization.get(organizationId)! - 1;
    if (own === 0) this.#byOrganization.delete(organizationId);
    else this.#byOrganization.set(organizationId, own);
  }
}
