import { GatewayError } from "../../lib/errors.ts";
import type { ChatMessage, ChatRequest } from "./request.ts";
import { chatCompletionBody } from "./schema.ts";

const FIELDS: ReadonlySet<string> = new Set(Object.keys(chatCompletionBody.properties));
/** Only what an assistant said, and what a function gave, may be without content. */
const MAY_BE_SILENT: ReadonlySet<string> = new Set(["assistant", "function"]);

/**
 * What of a message and of a tool depends on its kind, as OpenAI's API has it; the schema says the rest.
 * Throws 400, naming the place.
 */
export function assertWellFormed(request: ChatRequest): void {
  const { messages, tools } = request;
  for (const name in request) {
    if (!FIELDS.has(name) && FIELDS.has(folded(name))) throw miswritten(name);
  }
  if (request.logprobs !== true && Number(request.top_logprobs ?? 0) > 0) {
    const message = 'Request body field "top_logprobs": needs "logprobs": true';
    throw new GatewayError("invalid_body", message, { param: "top_logprobs" });
  }
  for (let i = 0; i < messages.length; i++) assertMessage(messages[i]!, i);
  tools?.forEach((tool, i) => {
    const { type, function: offered } = tool as { type: string; function?: unknown };
    if (type === "function" && offered === undefined) throw missing(`tools.${i}.function`);
  });
}

/**
 * Letters that some servers take for one another in names: those that are written in Go read `Model` and
 * `model` as one field, and the later of the two counts. So no such name may go on as an unknown one.
 */
function folded(name: string): string {
  return name.toUpperCase().toLowerCase();
}

function miswritten(name: string): GatewayError {
  const message = `Request body field ${JSON.stringify(name)} is written "${folded(name)}".`;
  return new GatewayError("invalid_body", message, { param: name });
}

function assertMessage(message: ChatMessage, position: number): void {
  const { role, content } = message;
  if (content === undefined || content === null) {
    if (!MAY_BE_SILENT.has(role)) throw missing(`messages.${position}.content`);
  } else if (typeof content !== "string") {
    const at = content.findIndex((part) => part.type === "text" && typeof part.text !== "string");
    if (at >= 0) throw missing(`messages.${position}.content.${at}.text`, "must be string");
  }
  if (role === "tool" && typeof message.tool_call_id !== "string") {
    throw missing(`messages.${position}.tool_call_id`);
  }
}

function missing(param: string, what = "is required"): GatewayError {
  return new GatewayError("invalid_body", `Request body field "${param}": ${what}`, { param });
}
