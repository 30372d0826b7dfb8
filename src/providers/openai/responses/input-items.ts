import { isFields } from "../../../lib/json.ts";
import { ProviderFailure } from "../../interface.ts";
import { type ReasoningItem, reasoningItems } from "./reasoning-items.ts";

type Fields = Readonly<Record<string, unknown>>;

const WEB_ADDRESS = /^https?:\/\//i;

/**
 * Returns the messages of a chat as items of a response's input
 * (https://platform.openai.com/docs/api-reference/responses/create). If a part has no counterpart, throws a
 * ProviderFailure that names it.
 */
export function inputItems(messages: readonly Fields[]): Fields[] {
  return messages.flatMap((message, at): Fields[] => {
    const path = `messages.${at}`;
    switch (message.role) {
      case "assistant":
        return answerOf(message, path);
      case "tool": {
        const output = contentOf(message.content, `${path}.content`);
        return [{ type: "function_call_output", call_id: message.tool_call_id, output }];
      }
      case "function":
        throw unsupported(`${path}.role`, "messages of the role function");
      default: {
        const content = contentOf(message.content, `${path}.content`);
        return [{ type: "message", role: message.role, content }];
      }
    }
  });
}

/**
 * Returns items for a request. They already have the form of this API, except for reasoning, whose `details` have the
 * form of chats. OpenAI rejects reasoning that is not followed by a part of its answer, so it is left out.
 */
export function requestItems(items: readonly Fields[]): Fields[] {
  const result: Fields[] = [];
  let thoughts: Fields[] = [];
  for (const item of items) {
    if (item.type === "reasoning") {
      thoughts.push(...reasoningItems(item.details).map((thought) => thought.item));
      continue;
    }
    if (isOfAnswer(item)) result.push(...thoughts);
    thoughts = [];
    result.push(item);
  }
  return result;
}

function isOfAnswer({ type, role }: Fields): boolean {
  return type === "message" ? role === "assistant" : !String(type).endsWith("_output");
}

function answerOf(message: Fields, path: string): Fields[] {
  const content = outputParts(message.content);
  if (content.length === 0 && typeof message.refusal === "string" && message.refusal !== "") {
    content.push({ type: "refusal", refusal: message.refusal });
  }
  const calls = Array.isArray(message.tool_calls) ? (message.tool_calls as Fields[]) : [];
  const items: Fields[] = [];
  if (content.length > 0) items.push({ type: "message", role: "assistant", content });
  for (const [at, call] of calls.entries()) {
    if (!isFields(call.function)) {
      throw unsupported(`${path}.tool_calls.${at}`, "calls of tools that are not functions");
    }
    const { name, arguments: text } = call.function;
    items.push({ type: "function_call", call_id: call.id, name, arguments: text ?? "{}" });
  }
  return withReasoning(items, reasoningItems(message.reasoning_details));
}

/**
 * Inserts reasoning at its position in the answer, as far as that is known. OpenAI rejects reasoning that nothing
 * follows, so it is inserted before the last item at the latest.
 */
function withReasoning(items: readonly Fields[], thoughts: readonly ReasoningItem[]): Fields[] {
  if (items.length === 0) return [];
  const all: Fields[] = [];
  let used = 0;
  for (const { position = 0, item } of thoughts) {
    while (all.length < position && used < items.length - 1) all.push(items[used++]!);
    all.push(item);
  }
  return [...all, ...items.slice(used)];
}

function outputParts(content: unknown): Fields[] {
  if (typeof content === "string")
    return content === "" ? [] : [{ type: "output_text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.flatMap(({ type, text, refusal }: Fields): Fields[] => {
    if (type === "refusal") return [{ type, refusal }];
    return text === "" ? [] : [{ type: "output_text", text }];
  });
}

function contentOf(content: unknown, path: string): unknown {
  if (!Array.isArray(content)) return content ?? "";
  return content.map((part: Fields, at) => partOf(part, `${path}.${at}`));
}

function partOf(part: Fields, path: string): Fields {
  if (part.type === "text") return { type: "input_text", text: part.text };
  if (part.type === "image_url") {
    const { url, detail } = isFields(part.image_url)
      ? part.image_url
      : { url: part.image_url, detail: undefined };
    return { type: "input_image", image_url: url, detail: detail ?? "auto" };
  }
  if (part.type !== "file" || !isFields(part.file)) {
    throw unsupported(`${path}.type`, `parts of type ${String(part.type).slice(0, 100)}`);
  }
  const { file_id: id, file_data: data, filename } = part.file;
  if (typeof id === "string") return { type: "input_file", file_id: id };
  if (typeof data === "string" && WEB_ADDRESS.test(data))
    return { type: "input_file", file_url: data };
  return { type: "input_file", file_data: data, filename: filename ?? "file" };
}

/** Returns the failure for a request that this API cannot express. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `OpenAI's Responses API does not accept ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
