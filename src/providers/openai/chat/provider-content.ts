import { textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields } from "../../../lib/json.ts";
import { type FinishReason, ProviderFailure } from "../../interface.ts";

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

const BY_NAME: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ["stop", "stop"],
  ["eos", "stop"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["length", "length"],
  ["max_tokens", "length"],
  ["model_length", "length"],
  ["model_context_window_exceeded", "length"],
  ["tool_calls", "tool_calls"],
  ["tool_use", "tool_calls"],
  ["function_call", "tool_calls"],
  ["content_filter", "content_filter"],
  ["content_filtered", "content_filter"],
  ["safety", "content_filter"],
  ["refusal", "content_filter"],
  ["sensitive", "content_filter"],
]);

/**
 * The reason in the words of spec 6.2; what no provider is known to say counts as a plain stop. Some stop
 * plainly behind tool calls, which clients do not look at then.
 */
export function finishReason(raw: unknown, hasToolCalls = false): FinishReason | null {
  if (typeof raw !== "string" || raw === "") return null;
  const reason = BY_NAME.get(raw) ?? BY_NAME.get(raw.toLowerCase()) ?? "stop";
  return reason === "stop" && hasToolCalls ? "tool_calls" : reason;
}

/** With these Mistral, OpenRouter, DeepSeek and Z.AI end an answer that they broke off. */
const FAILURES = new Set<unknown>(["error", "insufficient_system_resource", "network_error"]);

export function endsInFailure(choice: Readonly<Record<string, unknown>>): boolean {
  return FAILURES.has(choice.finish_reason);
}

/** The first of the choices that the provider broke off; undefined where it broke off none. */
export function failedChoice(choices: unknown): Record<string, unknown> | undefined {
  if (!Array.isArray(choices)) return undefined;
  return choices.find((choice: unknown) => isFields(choice) && endsInFailure(choice));
}

export function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}

export function bringsNothing(delta: Readonly<Record<string, unknown>>): boolean {
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
    // The error of the parser quotes what it stumbled over.
    throw new ProviderFailure(
      "unavailable",
      "the provider's stream holds something that is no JSON",
    );
  }
  if (!isFields(chunk)) {
    throw new ProviderFailure(
      "unavailable",
      "the provider's stream holds something that is no chunk",
    );
  }
  return chunk;
}

export function tellsError({ error, object }: Readonly<Record<string, unknown>>): boolean {
  return (Boolean(error) && !isEmptyError(error)) || object === "error";
}

/** Some providers send an empty error beside every answer. */
function isEmptyError(error: unknown): boolean {
  return isFields(error) && Object.keys(error).length === 0;
}
