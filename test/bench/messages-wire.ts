import { CONTENT_EVENTS, tokenOf } from "./wire.ts";

/*
 * What the benchmark's upstream answers in Anthropic's wire, and the requests that ask for it. The bare proxy
 * is sent them as they are; the gateway is asked for a chat, and calls the upstream in this wire.
 */

export const MESSAGES_PATH = "/v1/messages";
const ANSWER = "Hello! How can I help you today?";
const INPUT_TOKENS = 20;
const COMMON = { id: "msg_bench", type: "message", role: "assistant" };

/** The same conversation as that of the chats, as the gateway's adapter sends it. */
export function messagesRequest(model: string, isStream: boolean): string {
  return JSON.stringify({
    model,
    max_tokens: 256,
    system: [{ type: "text", text: "You are a helpful assistant." }],
    messages: [{ role: "user", content: [{ type: "text", text: "Say hello." }] }],
    ...(isStream && { stream: true }),
  });
}

export function wholeMessage(model: string): string {
  return JSON.stringify({
    ...COMMON,
    model,
    content: [{ type: "text", text: ANSWER }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage: usage(CONTENT_EVENTS),
  });
}

/** As many tokens as a chat's stream has, each a whole SSE frame. */
export function messageEvents(model: string): string[] {
  const frame = (event: { readonly type: string }) =>
    `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  const index = 0;
  return [
    {
      type: "message_start",
      message: { ...COMMON, model, content: [], stop_reason: null, usage: usage(1) },
    },
    { type: "content_block_start", index, content_block: { type: "text", text: "" } },
    { type: "ping" },
    ...Array.from({ length: CONTENT_EVENTS }, () => ({
      type: "content_block_delta",
      index,
      delta: { type: "text_delta", text: tokenOf(model) },
    })),
    { type: "content_block_stop", index },
    {
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: { output_tokens: CONTENT_EVENTS },
    },
    { type: "message_stop" },
  ].map(frame);
}

function usage(outputTokens: number) {
  return {
    input_tokens: INPUT_TOKENS,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
    cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
    output_tokens: outputTokens,
    service_tier: "standard",
  };
}

/** Throws where an answer of the bare proxy is not what the upstream meant. */
export function verifyMessages(text: string, isStream: boolean): void {
  const wrong = (what: string) => new Error(`the answer ${what}: ${text.slice(-400)}`);
  if (!isStream) {
    const { content } = JSON.parse(text) as { content: [{ text: string }] };
    if (content[0].text !== ANSWER) throw wrong("differs");
    return;
  }
  const tokens = text.match(/"text":"(?: tok|@\d{13}\.\d{3})"/g)?.length;
  if (tokens !== CONTENT_EVENTS) throw wrong(`has ${tokens} of ${CONTENT_EVENTS} tokens`);
  if (!text.endsWith('data: {"type":"message_stop"}\n\n')) throw wrong("has no end");
}
