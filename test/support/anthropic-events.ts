/** Events of Anthropic's streams (https://platform.claude.com/docs/en/build-with-claude/streaming). */

type Fields = Record<string, unknown>;

export const start = (usage: Fields | null = { input_tokens: 40, output_tokens: 1 }) => ({
  type: "message_start",
  message: { id: "msg_1", type: "message", role: "assistant", content: [], usage },
});

export const block = (index: number, content_block: Fields) => ({
  type: "content_block_start",
  index,
  content_block,
});

export const delta = (index: number, piece: Fields) => ({
  type: "content_block_delta",
  index,
  delta: piece,
});

/** A block of text. */
export const said = (text: string) => [
  block(0, { type: "text", text: "" }),
  delta(0, { type: "text_delta", text }),
  { type: "content_block_stop", index: 0 },
];

export const end = (stop_reason: string, usage: Fields | null = { output_tokens: 7 }) => [
  { type: "message_delta", delta: { stop_reason }, usage },
  { type: "message_stop" },
];

/** A message with these blocks, in pieces of a few characters. */
export function eventsOf(content: readonly Fields[]): object[] {
  const events: object[] = [start()];
  for (const [index, one] of content.entries()) {
    const add = (piece: Fields) => events.push(delta(index, piece));
    if (one.type === "thinking") {
      events.push(block(index, { type: "thinking", thinking: "", signature: "" }));
      for (const piece of pieces(one.thinking as string)) {
        add({ type: "thinking_delta", thinking: piece });
      }
      add({ type: "signature_delta", signature: one.signature });
    } else if (one.type === "text") {
      events.push(block(index, { type: "text", text: "" }));
      add({ type: "text_delta", text: one.text });
    } else {
      events.push(block(index, { ...one, input: {} }));
      for (const piece of pieces(JSON.stringify(one.input))) {
        add({ type: "input_json_delta", partial_json: piece });
      }
    }
    events.push({ type: "content_block_stop", index });
  }
  const isCalling = content.some(({ type }) => type === "tool_use");
  return [...events, ...end(isCalling ? "tool_use" : "end_turn")];
}

function pieces(text: string): readonly string[] {
  return text.match(/.{1,4}/g)!;
}
