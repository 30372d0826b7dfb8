import type { ApiKeyRecord } from "../lib/api-key-record.ts";

/** The API key of a request, as it was when the request was authenticated. */
export interface Caller {
  readonly key: ApiKeyRecord;
  /**
   * True for calls that can wait, such as calls of batches. All such calls together use at most half of the
   * key's limits and half of each provider's concurrency limit.
   */
  readonly isLowPriority?: boolean | undefined;
}
