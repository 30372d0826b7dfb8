import { GatewayError } from "../lib/errors.ts";
import { StorageError } from "../storage/interface.ts";

const RETRY_AFTER_SECONDS = 5;

/** A failure of the store as the caller may see it; any other error as it is. */
export function asStorageFailure(error: unknown): unknown {
  if (!(error instanceof StorageError)) return error;
  return new GatewayError("overloaded", "The file storage cannot be reached at the moment.", {
    cause: error,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}
