import { isFields } from "../../lib/json.ts";
import { type ChatRequest, LONG_BODY } from "./request.ts";

/**
 * Where a request asks for a cache of another lifetime than the usual five minutes; undefined where it does
 * not. Anthropic's of an hour costs twice the price of input to write.
 */
export function longCacheLifetime(request: ChatRequest): string | undefined {
  const long = request[LONG_BODY];
  if (long !== undefined) return long.size.longCacheLifetime;
  const { messages, tools } = request;
  if (isLong(request)) return "cache_control.ttl";
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at]!;
    if (isLong(message)) return `messages.${at}.cache_control.ttl`;
    if (!Array.isArray(message.content)) continue;
    const part = message.content.findIndex(isLong);
    if (part >= 0) return `messages.${at}.content.${part}.cache_control.ttl`;
  }
  const tool = tools?.findIndex((one) => isLong(one)) ?? -1;
  if (tool >= 0) return `tools.${tool}.cache_control.ttl`;
  const called = tools?.findIndex((one) => isFields(one) && isLong(one.function)) ?? -1;
  return called < 0 ? undefined : `tools.${called}.function.cache_control.ttl`;
}

function isLong(holder: unknown): boolean {
  if (!isFields(holder) || !isFields(holder.cache_control)) return false;
  const { ttl } = holder.cache_control;
  return ttl !== undefined && ttl !== null && ttl !== "5m";
}
