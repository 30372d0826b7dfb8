import type { Row } from "./compare.ts";
import type { Workload } from "./driver.ts";
import { DELAY_MS, LIVE_INTERVAL_MS, LIVE_STREAM_MS } from "./wire.ts";

export const CHAT: Workload = { model: "instant", isStream: false };
export const STREAM: Workload = { model: "instant", isStream: true };
export const LIVE: Workload = { model: "live", isStream: true };
const DELAYED: Workload = { model: "delayed", isStream: false };
const MESSAGES_CHAT: Workload = { model: "messages", isStream: false };
const MESSAGES_STREAM: Workload = { model: "messages", isStream: true };
const MESSAGES_LIVE: Workload = { model: "messagesLive", isStream: true };

const LIMIT_CONNECTIONS = 256;
const DEPLOYED_CONNECTIONS = 500;
/** Spreads clients whose answers came together over 40 ms: over the time between two events of a stream. */
const LIVE_THINK_MS = LIVE_INTERVAL_MS / 2;
/** Spreads them over 60 ms, the time of many commits: requests then arrive independently, about 1,500 a second. */
const DELAYED_THINK_MS = 30;
/** The loads of the comparison: what a deployment sees first, then the limits with an instant upstream. */
export const ROWS = [
  row("live", "live streams", LIVE, DEPLOYED_CONNECTIONS, LIVE_STREAM_MS, LIVE_THINK_MS),
  row("real", "chat, real", DELAYED, DEPLOYED_CONNECTIONS, DELAY_MS, DELAYED_THINK_MS),
  row("chat", "chat, limit", CHAT, LIMIT_CONNECTIONS, 0),
  row("stream", "streams, limit", STREAM, LIMIT_CONNECTIONS, 0),
  row("chat-32", "chat", CHAT, 32, 0),
  row(
    "anthropic-live",
    "live streams over Anthropic's wire",
    MESSAGES_LIVE,
    DEPLOYED_CONNECTIONS,
    LIVE_STREAM_MS,
    LIVE_THINK_MS,
  ),
  row("anthropic-chat", "chat over Anthropic's wire", MESSAGES_CHAT, LIMIT_CONNECTIONS, 0),
  row("anthropic-stream", "streams over Anthropic's wire", MESSAGES_STREAM, LIMIT_CONNECTIONS, 0),
] as const;

function row<Name extends string>(
  name: Name,
  title: string,
  workload: Workload,
  connections: number,
  answerMs: number,
  meanThinkMs?: number,
): Row & { readonly name: Name } {
  return { name, title, workload, connections, answerMs, meanThinkMs };
}
