import { GatewayError } from "../lib/errors.ts";
import { SharedRoom } from "../lib/shared-room.ts";

/** Each holds two parts of 5 MB in memory while the store is slow. */
const MAX_UPLOADS = 64;
/** One organization cannot take all of them. */
const MAX_UPLOADS_OF_ORGANIZATION = 32;
const RETRY_AFTER_SECONDS = 5;

/** Bounds the uploads that run in this process at a time. */
export class UploadSlots {
  readonly #slots = new SharedRoom(MAX_UPLOADS, MAX_UPLOADS_OF_ORGANIZATION);

  /** Throws 503 where all are taken. */
  take(organizationId: string): void {
    if (this.#slots.tryTake(organizationId)) return;
    throw new GatewayError("overloaded", "Too many uploads are running; try again shortly.", {
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }

  free(organizationId: string): void {
    this.#slots.free(organizationId);
  }
}
