import { textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import { type FinishReason, ProviderFailure } from "../../interface.ts";
import {
  ABORTED_REASONS,
  FINISH_REASONS,
  OTHER_REASONING_NAME,
  SERVICE_TIERS,
} from "../openai-variants.ts";

type Fields = Record<string, unknown>;

/** Members of a message that are a list or an object in clients' schemas. vLLM sends null if there is none. */
const NEVER_NULL = ["annotations", "audio", "images", "reasoning_details"] as const;

/**
 * Converts a provider's message or delta to one form: reasoning is `reasoning`, content is a string. Mistral sends
 * content as a list of text and thinking parts.
 */
export function normaliseContent(message: Fields): void {
  const otherReasoning = message[OTHER_REASONING_NAME];
  if (typeof otherReasoning === "string" && typeof message.reasoning !== "string") {
    message.reasoning = otherReasoning;
  }
  delete message[OTHER_REASONING_NAME];
  if (typeof message.reasoning !== "string" || message.reasoning === "") delete message.reasoning;
  for (const name of NEVER_NULL) if (message[name] === null) delete message[name];
  if (Array.isArray(message.content)) splitParts(message, message.content);
}

/** Removes the reasoning for requests that exclude it: the text, and OpenRouter's details. */
export function hideReasoning(message: Fields): void {
  delete message.reasoning;
  delete message.reasoning_details;
}

/**
 * Returns the creation time of a completion in Unix seconds. Undefined if the provider reports none, or an invalid one.
 */
export function createdTime(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
}

/** Removes members of an answer or a chunk that OpenAI's API has in another form or not at all. */
export function normaliseHead(body: Fields): void {
  if (body.service_tier !== undefined && !SERVICE_TIERS.has(body.service_tier)) {
    body.service_tier = undefined;
  }
  if (typeof body.system_fingerprint !== "string") body.system_fingerprint = undefined;
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

/**
 * Returns the finish reason in the terms of spec 6.2. Unknown reasons count as a plain stop. Some providers report a
 * plain stop after tool calls, which clients would then ignore.
 */
export function finishReason(raw: unknown, hasToolCalls = false): FinishReason | null {
  if (typeof raw !== "string" || raw === "") return null;
  const reason = FINISH_REASONS.get(raw) ?? FINISH_REASONS.get(raw.toLowerCase()) ?? "stop";
  return reason === "stop" && hasToolCalls ? "tool_calls" : reason;
}

export function endsInFailure(choice: Readonly<Record<string, unknown>>): boolean {
  return ABORTED_REASONS.has(choice.finish_reason);
}

/** Returns the first choice that the provider aborted. Undefined if it aborted none. */
export function failedChoice(choices: unknown): Record<string, unknown> | undefined {
  if (!Array.isArray(choices)) return undefined;
  return choices.find((choice: unknown) => isFields(choice) && endsInFailure(choice));
}

export function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

export function isEmptyDelta(delta: Readonly<Record<string, unknown>>): boolean {
  for (const field in delta) {
    const value = delta[field];
    if (value === null || value === "" || (Array.isArray(value) && value.length === 0)) continue;
    return false;
  }
  return true;
}

export function parseChunk(data: string): Record<string, unknown> {
  let chunk: unknown;
  try {
    chunk = JSON.parse(textOfLatin1(data));
  } catch {
    // The parser's error quotes the text that it failed on, so it is not passed on.
    throw new ProviderFailure(
      "unavailable",
      "the provider's stream contains something that is not JSON",
    );
  }
  if (!isFields(chunk)) {
    throw new ProviderFailure(
      "unavailable",
      "the provider's stream contains something that is not a chunk",
    );
  }
  return chunk;
}

export function reportsError({ error, object }: Readonly<Record<string, unknown>>): boolean {
  return (Boolean(error) && !isEmptyError(error)) || object === "error";
}

/** Returns true for an empty error, which some providers send with every answer. */
function isEmptyError(error: unknown): boolean {
  return isFields(error) && Object.keys(error).length === 0;
}
