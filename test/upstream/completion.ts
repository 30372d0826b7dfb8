import type { BehaviourOptions } from "./behaviour.ts";
import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";
import { valueForSchema } from "./schema-value.ts";

const CREATED_UNIX_SECONDS = 1_700_000_000;
const CHARACTERS_PER_TOKEN = 4;
const DEFAULT_EVENTS = 4;
const MOST_CHOICES = 16;

/** The deterministic answer to a request, before it is put into a shape. */
export interface Completion {
  id: string;
  created: number;
  model: string;
  choices: number;
  content: string[];
  reasoning: string;
  toolCalls: { id: string; name: string; arguments: string }[];
  finishReason: "stop" | "length" | "tool_calls";
  /** Null where none is sent. */
  usage: unknown;
}

/** Same request, options and id, same answer. A token is 4 characters, both ways, in usage and in `max_tokens`. */
export function completionFor(
  request: JsonObject,
  options: BehaviourOptions,
  id: string,
): Completion {
  const toolCalls = toolCallsFor(request, options).map((call, i) => ({
    id: `call_${id}_${i}`,
    ...call,
  }));
  const limit = tokenLimitOf(request) * CHARACTERS_PER_TOKEN;
  const full = toolCalls.length > 0 ? "" : contentFor(request, options);
  const content = full.slice(0, limit);
  const choices = Math.min(Math.max(1, asCount(request.n)), MOST_CHOICES);
  const reasoning = options.reasoning ?? "";
  const reasoningTokens = tokensOf(reasoning);
  const spoken = content + toolCalls.map((call) => call.name + call.arguments).join("");
  return {
    id: `chatcmpl-${id}`,
    created: CREATED_UNIX_SECONDS,
    model: asText(request.model),
    choices,
    content: pieces(content, options.events ?? DEFAULT_EVENTS),
    reasoning,
    toolCalls,
    finishReason:
      toolCalls.length > 0 ? "tool_calls" : content.length < full.length ? "length" : "stop",
    usage:
      options.usage === undefined
        ? usageOf(
            promptTokensOf(request),
            (tokensOf(spoken) + reasoningTokens) * choices,
            reasoningTokens,
          )
        : options.usage,
  };
}

function promptTokensOf(request: JsonObject): number {
  return Math.max(1, tokensOf(asArray(request.messages).map(textOf).join("")));
}

export function tokensOf(spoken: string): number {
  return Math.ceil(spoken.length / CHARACTERS_PER_TOKEN);
}

/** Splits by code point into at most that many pieces of nearly the same length. */
export function pieces(content: string, count: number): string[] {
  const characters = Array.from(content);
  const parts = Math.min(count, characters.length);
  return Array.from({ length: parts }, (_, i) =>
    characters
      .slice(
        Math.floor((i * characters.length) / parts),
        Math.floor(((i + 1) * characters.length) / parts),
      )
      .join(""),
  );
}

function usageOf(
  promptTokens: number,
  completionTokens: number,
  reasoningTokens: number,
): JsonObject {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: reasoningTokens },
  };
}

function tokenLimitOf(request: JsonObject): number {
  const limit = request.max_completion_tokens ?? request.max_tokens;
  return typeof limit === "number" ? limit : Number.MAX_SAFE_INTEGER;
}

function contentFor(request: JsonObject, options: BehaviourOptions): string {
  if (options.content !== undefined) return options.content;
  if (options.events !== undefined) {
    return Array.from({ length: options.events }, (_, i) => `w${String(i).padStart(6, "0")} `).join(
      "",
    );
  }
  const prompt = textOf(asArray(request.messages).findLast((one) => asObject(one).role === "user"));
  const format = asObject(request.response_format);
  if (format.type === "json_object") return JSON.stringify({ echo: prompt });
  if (format.type === "json_schema") {
    return JSON.stringify(valueForSchema(asObject(format.json_schema).schema));
  }
  return `Echo: ${prompt}`;
}

function toolCallsFor(
  request: JsonObject,
  options: BehaviourOptions,
): { name: string; arguments: string }[] {
  if (options.toolCalls !== undefined) return options.toolCalls;
  const offered = asArray(request.tools).map((tool) => asObject(asObject(tool).function));
  const wanted = asText(asObject(asObject(request.tool_choice).function).name);
  const chosen =
    request.tool_choice === "required" ? offered[0] : offered.find((one) => one.name === wanted);
  if (chosen === undefined) return [];
  const argument = valueForSchema(chosen.parameters ?? { type: "object" });
  return [{ name: asText(chosen.name), arguments: JSON.stringify(argument) }];
}

function textOf(message: unknown): string {
  const content = asObject(message).content;
  const parts = asArray(content).map((part) => asText(asObject(part).text));
  return [asText(content), ...parts].join("");
}
