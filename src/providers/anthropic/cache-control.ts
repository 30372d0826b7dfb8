import { isFields } from "../../lib/json.ts";

export interface CacheControl {
  readonly type: "ephemeral";
  readonly ttl?: string;
}

/**
 * Returns the cache breakpoint of a part, message or tool, in Anthropic's form. Returns undefined if it has
 * none.
 */
export function cacheControlOf(holder: unknown): CacheControl | undefined {
  if (!isFields(holder) || !isFields(holder.cache_control)) return undefined;
  const { ttl } = holder.cache_control;
  return typeof ttl === "string" ? { type: "ephemeral", ttl } : { type: "ephemeral" };
}
