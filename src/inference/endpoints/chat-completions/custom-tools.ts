import { isFields, jsonValue } from "../../../lib/json.ts";
import type { ClientCompletion } from "../../../providers/interface.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { type ChatMessage, type ChatRequest, OFFLOADED_BODY } from "./request.ts";

/**
 * Custom tools take plain text as input. Providers without custom tools receive a function with one string
 * parameter instead, so that every model supports them. The gateway turns calls of that function into calls
 * of the custom tool.
 */

type Fields = Readonly<Record<string, unknown>>;

/** The parameters of a function that replaces a custom tool. */
export const CUSTOM_PARAMETERS = {
  type: "object",
  properties: { input: { type: "string" } },
  required: ["input"],
  additionalProperties: false,
};
/** Upper bound of the UTF-8 bytes by which a tool or a call grows as a function. */
const GROWTH_BYTES = 256;

interface CustomTool {
  readonly description?: unknown;
  /** The format of the input. The grammar is next to its type (Responses), or in a separate member (chats). */
  readonly format?: unknown;
}

/** Returns the description of the function that replaces a custom tool, including the grammar of its input. */
export function customDescription({ description, format }: CustomTool): string {
  const text = typeof description === "string" ? description : "";
  if (!isFields(format) || format.type !== "grammar") return text;
  const { syntax, definition } = isFields(format.grammar) ? format.grammar : format;
  return `${text}\n\nThe input follows this ${syntax} grammar:\n${definition}`.trimStart();
}

/**
 * Returns the input of the custom tool from the function's arguments. If the arguments do not have the
 * function's form, returns them unchanged.
 */
export function customInput(json: string): string {
  const value = jsonValue(json);
  return isFields(value) && typeof value.input === "string" ? value.input : json;
}

/** Returns the names of the custom tools in a request. */
export function customToolsOf(request: ChatRequest): readonly string[] {
  const long = request[OFFLOADED_BODY];
  if (long !== undefined) return long.customTools ?? NONE;
  const { tools } = request;
  if (!tools) return NONE;
  const names: string[] = [];
  for (const tool of tools as readonly Fields[]) {
    if (tool.type === "custom" && isFields(tool.custom)) names.push(tool.custom.name as string);
  }
  return names;
}

const NONE: readonly string[] = [];

/** Returns true if the candidate supports custom tools. */
export function takesCustomTools({ provider, upstreamModel, model }: Candidate): boolean {
  const modelId = model.canonicalId ?? model.id;
  return provider.fields?.takesCustomTools?.({ model: upstreamModel, modelId }) === true;
}

/** Returns the UTF-8 bytes that the prompt can gain because functions need more text than custom tools. */
export function customGrowth({ tools, messages }: ChatRequest): number {
  let grown = 0;
  for (const tool of (tools ?? []) as readonly Fields[]) {
    if (tool.type === "custom") grown += GROWTH_BYTES;
  }
  for (const { tool_calls: calls } of messages) {
    if (!Array.isArray(calls)) continue;
    for (const call of calls) if (isFields(call) && isFields(call.custom)) grown += GROWTH_BYTES;
  }
  return grown;
}

/** Returns the value of a request field, with custom tools replaced by functions. */
export function asFunctions(field: string, value: unknown): unknown {
  if (field === "tools" && Array.isArray(value)) return value.map(functionOf);
  if (field === "tool_choice") return functionChoice(value);
  if (field === "messages") return (value as readonly ChatMessage[]).map(withFunctionCalls);
  return value;
}

function functionOf(tool: Fields): Fields {
  const { type, custom, ...rest } = tool;
  if (type !== "custom" || !isFields(custom)) return tool;
  const description = customDescription(custom);
  return {
    ...rest,
    type: "function",
    function: {
      name: custom.name,
      ...(description !== "" && { description }),
      parameters: CUSTOM_PARAMETERS,
    },
  };
}

function functionChoice(choice: unknown): unknown {
  if (!isFields(choice)) return choice;
  if (choice.type === "custom" && isFields(choice.custom)) {
    return { type: "function", function: { name: choice.custom.name } };
  }
  const { allowed_tools: allowed } = choice;
  if (!isFields(allowed) || !Array.isArray(allowed.tools)) return choice;
  return { ...choice, allowed_tools: { ...allowed, tools: allowed.tools.map(functionChoice) } };
}

function withFunctionCalls(message: ChatMessage): ChatMessage {
  const { tool_calls: calls } = message;
  if (!Array.isArray(calls) || !calls.some((call) => isFields(call) && isFields(call.custom))) {
    return message;
  }
  return { ...message, tool_calls: calls.map(functionCall) };
}

function functionCall(call: Fields): Fields {
  const { custom, ...rest } = call;
  if (!isFields(custom)) return call;
  const called = { name: custom.name, arguments: JSON.stringify({ input: custom.input ?? "" }) };
  return { ...rest, type: "function", function: called };
}

/** Returns a call of a custom tool, made from a call of the function that replaces it. */
export function customCall(id: unknown, name: string, json: string): Fields {
  return { id, type: "custom", custom: { name, input: customInput(json) } };
}

/** Returns the complete answer, with calls of custom tools in place of calls of their functions. */
export function withCustomCalls(
  completion: ClientCompletion,
  names: readonly string[],
): ClientCompletion {
  const { body } = completion;
  const parsed = body instanceof Uint8Array ? jsonValue(new TextDecoder().decode(body)) : body;
  if (!isFields(parsed) || !Array.isArray(parsed.choices)) return completion;
  let isChanged = false;
  for (const { message } of parsed.choices as readonly { message: Record<string, unknown> }[]) {
    if (!Array.isArray(message.tool_calls)) continue;
    message.tool_calls = message.tool_calls.map((call: Fields) => {
      const { id, function: called } = call;
      if (!isFields(called) || !names.includes(called.name as string)) return call;
      isChanged = true;
      return customCall(id, called.name as string, String(called.arguments));
    });
  }
  if (!isChanged) return completion;
  const isBytes = body instanceof Uint8Array;
  return {
    ...completion,
    body: isBytes ? new TextEncoder().encode(JSON.stringify(parsed)) : parsed,
  };
}
