import type { ProviderSettings } from "../interface.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/fixed-headers.ts";

/** The version of the API that this folder speaks (https://platform.claude.com/docs/en/api/versioning). */
const VERSION = "2023-06-01";

/** More than Anthropic has; without a limit it lists 20. */
export const MODEL_LIST_QUERY = "limit=1000";

/** Throws where the key has characters that no header can carry. */
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
