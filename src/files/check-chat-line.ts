import { isObject, type LineFault } from "./json-lines-check.ts";

const ROLES = ["system", "developer", "user", "assistant", "tool", "function"];

/**
 * A training example in chat format, `{messages: [{role, content}]}` (spec 4.10), with what OpenAI's chat
 * format has besides: tools, tool calls, content in parts. Fields beyond these are left to the provider.
 */
export function checkChatLine(line: Record<string, unknown>): LineFault | undefined {
  const { messages, tools } = line;
  if (messages === undefined) return { field: "messages", what: "is missing" };
  if (!Array.isArray(messages)) return { field: "messages", what: "must be an array" };
  if (messages.length === 0) return { field: "messages", what: "must hold a message" };
  for (const [index, message] of messages.entries()) {
    const fault = checkMessage(message);
    if (fault === undefined) continue;
    const place = `messages.${index}`;
    return { ...fault, field: fault.field === undefined ? place : `${place}.${fault.field}` };
  }
  if (isGiven(tools) && !Array.isArray(tools)) {
    return { field: "tools", what: "must be an array" };
  }
  return undefined;
}

function checkMessage(message: unknown): LineFault | undefined {
  if (!isObject(message)) return { what: "must be an object" };
  const { role, content } = message;
  if (role === undefined) return { field: "role", what: "is missing" };
  if (typeof role !== "string" || !ROLES.includes(role)) {
    return { field: "role", what: `must be one of ${ROLES.join(", ")}` };
  }
  const calls = message.tool_calls;
  if (isGiven(calls) && (!Array.isArray(calls) || !calls.every(isObject))) {
    return { field: "tool_calls", what: "must be an array of objects" };
  }
  if (role === "tool" && typeof message.tool_call_id !== "string") {
    return { field: "tool_call_id", what: "must be a string" };
  }
  return checkContent(content, role === "assistant" && saidWithoutContent(message).length > 0);
}

/** What an assistant's message says beside its content: one that calls or refuses has no need of any. */
export function saidWithoutContent(message: Readonly<Record<string, unknown>>): unknown[] {
  return [message.tool_calls, message.function_call, message.refusal].filter(isGiven);
}

/** SDKs write null for what a message has none of. */
function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function checkContent(content: unknown, mayBeAbsent: boolean): LineFault | undefined {
  const field = "content";
  if (!isGiven(content)) {
    if (mayBeAbsent) return undefined;
    return { field, what: content === null ? "must not be null" : "is missing" };
  }
  if (typeof content === "string") return undefined;
  const isParts =
    Array.isArray(content) &&
    content.length > 0 &&
    content.every((part) => isObject(part) && typeof part.type === "string");
  return isParts ? undefined : { field, what: "must be a string or an array of content parts" };
}
