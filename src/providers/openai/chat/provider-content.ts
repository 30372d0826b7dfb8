import { isFields } from "../../../lib/json.ts";

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
  // A list in OpenAI's form; vLLM says null where there is none.
  if (message.annotations === null) delete message.annotations;
  if (Array.isArray(message.content)) splitParts(message, message.content);
}

/** What a request that asks for no reasoning does not get: the text, and what OpenRouter tells of it beside. */
export function hideReasoning(message: Fields): void {
  delete message.reasoning;
  delete message.reasoning_details;
}

/** When a completion was made, in Unix seconds; undefined where the provider does not say, or says nonsense. */
export function createdTime(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
}

/** OpenAI's names of tiers: clients that check answers strictly know no others, such as Groq's `on_demand`. */
const SERVICE_TIERS: ReadonlySet<unknown> = new Set([
  "auto",
  "default",
  "flex",
  "scale",
  "priority",
]);

/** Leaves out of an answer, or a chunk of one, what OpenAI's form has otherwise or not at all. */
export function normaliseHead(body: Fields): void {
  if (body.service_tier !== undefined && !SERVICE_TIERS.has(body.service_tier)) {
    body.service_tier = undefined;
  }
  if (body.system_fingerprint === null) body.system_fingerprint = undefined;
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
