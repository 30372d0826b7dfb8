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
  if (tools !== undefined && !Array.isArray(tools)) {
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
  if (calls !== undefined && (!Array.isArray(calls) || !calls.every(isObject))) {
    return { field: "tool_calls", what: "must be an array of objects" };
  }
  if (role === "tool" && typeof message.tool_call_id !== "string") {
    return { field: "tool_call_id", what: "must be a string" };
  }
  return checkContent(content, role === "assistant" && saysOtherwise(message));
}

/** An assistant's message that calls or refuses has no need of content. */
function saysOtherwise(message: Record<string, unknown>): boolean {
  return ["tool_calls", "function_call", "refusal"].some(
    (name) => (message[name] ?? null) !== null,
  );
}

function checkContent(content: unknown, mayBeAbsent: boolean): LineFault | undefined {
  const field = "content";
  if (content === undefined || content === null) {
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
