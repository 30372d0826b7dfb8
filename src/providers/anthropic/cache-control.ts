import { isFields } from "../../lib/json.ts";

export interface CacheControl {
  readonly type: "ephemeral";
  readonly ttl?: string;
}

/** The breakpoint of the prompt's cache that a part, message or tool carries, in Anthropic's own form. */
export function cacheControlOf(holder: unknown): CacheControl | undefined {
  if (!isFields(holder) || !isFields(holder.cache_control)) return undefined;
  const { ttl } = holder.cache_control;
  return typeof ttl === "string" ? { type: "ephemeral", ttl } : { type: "ephemeral" };
}
