type Fields = Record<string, unknown>;

/**
 * Brings a message or delta of a provider into one form: reasoning is `reasoning`, content is a string.
 * DeepSeek and others say `reasoning_content`; Mistral sends content as a list of text and thinking parts.
 */
export function normaliseContent(message: Fields): void {
  if (typeof message.reasoning_content === "string" && typeof message.reasoning !== "string") {
    message.reasoning = message.reasoning_content;
  }
  delete message.reasoning_content;
  if (typeof message.reasoning !== "string" || message.reasoning === "") delete message.reasoning;
  if (Array.isArray(message.content)) splitParts(message, message.content);
}

/** OpenRouter tells the same once more, in detail. */
export function hideReasoning(message: Fields): void {
  delete message.reasoning;
  delete message.reasoning_details;
}

function splitParts(message: Fields, parts: readonly unknown[]): void {
  let content = "";
  let reasoning = "";
  for (const part of parts) {
    if (!isFields(part)) continue;
    if (part.type === "thinking") reasoning += textOf(part.thinking);
    else content += textOf(part);
  }
  if (reasoning !== "") message.reasoning = `${(message.reasoning as string) ?? ""}${reasoning}`;
  if (content === "" && reasoning !== "") delete message.content;
  else message.content = content;
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(textOf).join("");
  return isFields(value) && typeof value.text === "string" ? value.text : "";
}

export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
