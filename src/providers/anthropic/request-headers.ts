import type { ProviderSettings } from "../interface.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";

/** Version of the API that this folder implements (https://platform.claude.com/docs/en/api/versioning). */
const VERSION = "2023-06-01";

/** Page size of the model list: more than Anthropic has models. Without a limit it lists 20. */
export const MODEL_LIST_QUERY = "limit=1000";

/** Returns the headers of a request. Throws if the key has characters that a header cannot carry. */
export function requestHeaders({
  id,
  apiKey,
}: Pick<ProviderSettings, "id" | "apiKey">): Record<string, string> {
  const headers: Record<string, string> = {
    ...JSON_HEADERS,
    "anthropic-version": VERSION,
  };
  if (apiKey === undefined) return headers;
  assertKeyIsCarried(id, apiKey);
  return { ...headers, "x-api-key": apiKey };
}
