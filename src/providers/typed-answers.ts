import type { ChatEvent, ReasoningDetail } from "./interface.ts";

/** Returns the UTF-8 bytes of the answer that an event contains. */
export function answerBytes(event: ChatEvent): number {
  switch (event.type) {
    case "tool_call":
      return Buffer.byteLength((event.name ?? "") + (event.arguments ?? ""));
    case "reasoning":
      return Buffer.byteLength(event.text) + encryptedBytes(event.details);
    case "text":
    case "refusal":
      return Buffer.byteLength(event.text);
    case "foreign_item":
      return foreignBytes(event);
    default:
      return 0;
  }
}

/** Returns the bytes of the model's text in a foreign item. Only pieces count. */
function foreignBytes({
  step,
  fields,
}: Extract<ChatEvent, { readonly type: "foreign_item" }>): number {
  const isDelta = typeof step === "object" && step.event.endsWith(".delta");
  return isDelta && typeof fields.delta === "string" ? Buffer.byteLength(fields.delta) : 0;
}

/** Returns the bytes of encrypted reasoning. It is output, although only the provider can read it. */
function encryptedBytes(details: readonly ReasoningDetail[] = []): number {
  let bytes = 0;
  for (const detail of details) {
    if (detail.type === "reasoning.encrypted") bytes += Buffer.byteLength(detail.data);
  }
  return bytes;
}
