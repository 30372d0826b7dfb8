import { isFields } from "../../../lib/json.ts";
import { ProviderFailure } from "../../interface.ts";
import { type KeptItem, keptItems } from "./reasoning-items.ts";

type Fields = Readonly<Record<string, unknown>>;

const WEB_ADDRESS = /^https?:\/\//i;

/**
 * The messages of a chat as items of a response's input
 * (https://platform.openai.com/docs/api-reference/responses/create). Throws ProviderFailure that names what has no
 * counterpart.
 */
export function inputItems(messages: readonly Fields[]): Fields[] {
  return messages.flatMap((message, at): Fields[] => {
    const place = `messages.${at}`;
    switch (message.role) {
      case "assistant":
        return answerOf(message, place);
      case "tool": {
        const output = contentOf(message.content, `${place}.content`);
        return [{ type: "function_call_output", call_id: message.tool_call_id, output }];
      }
      case "function":
        throw unsupported(`${place}.role`, "messages of the role function");
      default: {
        const content = contentOf(message.content, `${place}.content`);
        return [{ type: "message", role: message.role, content }];
      }
    }
  });
}

/**
 * Items that are in the form of this interface but for reasoning, whose `details` are those of chats. OpenAI refuses
 * reasoning behind which nothing of its answer follows: it is left out.
 */
export function sentItems(items: readonly Fields[]): Fields[] {
  const sent: Fields[] = [];
  let thoughts: Fields[] = [];
  for (const item of items) {
    if (item.type === "reasoning") {
      thoughts.push(...keptItems(item.details).map(({ item: kept }) => kept));
      continue;
    }
    if (isOfAnswer(item)) sent.push(...thoughts);
    thoughts = [];
    sent.push(item);
  }
  return sent;
}

function isOfAnswer({ type, role }: Fields): boolean {
  return type === "message" ? role === "assistant" : !String(type).endsWith("_output");
}

function answerOf(message: Fields, place: string): Fields[] {
  const said = saidIn(message.content);
  if (said.length === 0 && typeof message.refusal === "string" && message.refusal !== "") {
    said.push({ type: "refusal", refusal: message.refusal });
  }
  const calls = Array.isArray(message.tool_calls) ? (message.tool_calls as Fields[]) : [];
  const items: Fields[] = [];
  if (said.length > 0) items.push({ type: "message", role: "assistant", content: said });
  for (const [at, call] of calls.entries()) {
    if (!isFields(call.function)) {
      throw unsupported(`${place}.tool_calls.${at}`, "calls of what is no function");
    }
    const { name, arguments: text } = call.function;
    items.push({ type: "function_call", call_id: call.id, name, arguments: text ?? "{}" });
  }
  return withReasoning(items, keptItems(message.reasoning_details));
}

/**
 * Reasoning comes where it stood in its answer, as far as that is known. OpenAI refuses it where nothing follows it:
 * it comes before the last item at the latest.
 */
function withReasoning(items: readonly Fields[], thoughts: readonly KeptItem[]): Fields[] {
  if (items.length === 0) return [];
  const all: Fields[] = [];
  let taken = 0;
  for (const { place = 0, item } of thoughts) {
    while (all.length < place && taken < items.length - 1) all.push(items[taken++]!);
    all.push(item);
  }
  return [...all, ...items.slice(taken)];
}

function saidIn(content: unknown): Fields[] {
  if (typeof content === "string")
    return content === "" ? [] : [{ type: "output_text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.flatMap(({ type, text, refusal }: Fields): Fields[] => {
    if (type === "refusal") return [{ type, refusal }];
    return text === "" ? [] : [{ type: "output_text", text }];
  });
}

function contentOf(content: unknown, place: string): unknown {
  if (!Array.isArray(content)) return content ?? "";
  return content.map((part: Fields, at) => partOf(part, `${place}.${at}`));
}

function partOf(part: Fields, place: string): Fields {
  if (part.type === "text") return { type: "input_text", text: part.text };
  if (part.type === "image_url") {
    const { url, detail } = isFields(part.image_url)
      ? part.image_url
      : { url: part.image_url, detail: undefined };
    return { type: "input_image", image_url: url, detail: detail ?? "auto" };
  }
  if (part.type !== "file" || !isFields(part.file)) {
    throw unsupported(`${place}.type`, `parts of type ${String(part.type).slice(0, 100)}`);
  }
  const { file_id: id, file_data: data, filename } = part.file;
  if (typeof id === "string") return { type: "input_file", file_id: id };
  if (typeof data === "string" && WEB_ADDRESS.test(data))
    return { type: "input_file", file_url: data };
  return { type: "input_file", file_data: data, filename: filename ?? "file" };
}

/** The request cannot be said in this wire. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `OpenAI's Responses interface does not take ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
