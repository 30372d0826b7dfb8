import type { ApiKeyRecord } from "../lib/api-key-record.ts";

/** The API key behind a request, as it stood when the request was authenticated. */
export interface Caller {
  readonly key: ApiKeyRecord;
}
