import { CUSTOM_PARAMETERS, customDescription } from "../chat-completions/custom-tools.ts";
import { type ChatRequest, ITEM_FORM } from "../chat-completions/request.ts";
import { chatMessages } from "./chat-messages.ts";
import { itemForm } from "./item-form.ts";
import { turnItems } from "./item-references.ts";
import { NAMESPACE, NamespaceTools } from "./namespace-tools.ts";
import {
  functionOfChoice,
  isOffered,
  isRunHere,
  type ResponsesBody,
  type ResponsesTurn,
  type Tool,
  type ToolChoice,
} from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** A request translated to a chat call, and its parts without a counterpart there. */
export interface ChatTranslation {
  readonly request: ChatRequest;
  /** Names of the fields and tools, and types of the items, that are left out. */
  readonly untranslated: readonly string[];
  readonly namespaces: NamespaceTools;
}

/** Members with the same name and meaning in both APIs. */
const SHARED_NAMES = [
  "model",
  "models",
  "provider",
  "route_explain",
  "guardrail",
  "session_id",
  "trace",
  "metadata",
  "stream",
  "temperature",
  "top_p",
  "presence_penalty",
  "frequency_penalty",
  "service_tier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "safety_identifier",
  "user",
] as const;

/** Members that are translated, or that the gateway handles itself. */
const TRANSLATED: ReadonlySet<string> = new Set([
  ...SHARED_NAMES,
  "input",
  "instructions",
  "previous_response_id",
  "conversation",
  "store",
  "background",
  "stream_options",
  "tools",
  "tool_choice",
  "parallel_tool_calls",
  // Limits the tools that the gateway runs.
  "max_tool_calls",
  "max_output_tokens",
  "top_logprobs",
  "text",
  "reasoning",
  "include",
  "truncation",
  "preset",
  "__proto__",
]);

/** The value of `include` that a chat answer supports. */
export const LOGPROBS = "message.output_text.logprobs";

export function chatRequestOf(turn: ResponsesTurn): ChatTranslation {
  const { body } = turn;
  const untranslated = new Set<string>();
  for (const field in body) {
    if (body[field] !== null && !TRANSLATED.has(field)) untranslated.add(field);
  }
  // No chat API cuts a prompt that is too long, so it is rejected.
  if (body.truncation === "auto") untranslated.add("truncation");
  if (wantsObfuscation(body)) untranslated.add("stream_options.include_obfuscation");
  const runHere = new Set((body.tools ?? []).filter(isRunHere).map(functionOfChoice));
  const namespaces = new NamespaceTools(body);
  const messages = chatMessages(turnItems(turn), untranslated, runHere, namespaces);
  if (body.instructions) messages.unshift({ role: "system", content: body.instructions });
  const request: ChatRequest = {
    ...sharedFields(body),
    // Streamed, so that it can be cancelled and followed before it is complete.
    ...(body.background === true && { stream: true }),
    [ITEM_FORM]: (leftOut) => itemForm(turn, leftOut),
    messages,
    ...(body.max_output_tokens && { max_tokens: body.max_output_tokens }),
    ...toolFields(body, untranslated, namespaces),
    ...textFields(body),
    ...logprobFields(body),
    ...reasoningFields(body),
  };
  return { request, untranslated: [...untranslated], namespaces };
}

function sharedFields(body: ResponsesBody): Fields {
  const fields: Record<string, unknown> = {};
  for (const name of SHARED_NAMES) {
    const value = body[name];
    if (value !== undefined && value !== null) fields[name] = value;
  }
  return fields;
}

/**
 * Returns true if the request wants obfuscated lengths. Only the provider could do this, because its pieces
 * determine the lengths.
 */
function wantsObfuscation({ stream_options: options }: ResponsesBody): boolean {
  return (options as Fields | null | undefined)?.include_obfuscation === true;
}

function toolFields(
  body: ResponsesBody,
  untranslated: Set<string>,
  namespaces: NamespaceTools,
): Fields {
  const { tools, tool_choice: choice, parallel_tool_calls: parallel } = body;
  const offered: Tool[] = [];
  for (const tool of tools ?? []) {
    if (isOffered(tool)) offered.push(tool);
    // Tools that the gateway runs are added when the provider is called: see `HostedTools`.
    else if (!isRunHere(tool) && tool.type !== NAMESPACE) untranslated.add(`tools.${tool.type}`);
  }
  for (const { tool } of namespaces.functions.values()) offered.push(tool);
  if (namespaces.hasUnsupportedTools) untranslated.add(`tools.${NAMESPACE}`);
  if (offered.length === 0 && tools?.some(isRunHere) !== true) return {};
  return {
    ...(offered.length > 0 && { tools: offered.map(functionOf) }),
    ...(choice && { tool_choice: choiceOf(choice, namespaces) }),
    ...(parallel === false && { parallel_tool_calls: false }),
  };
}

/**
 * Returns a tool as a function. A custom tool becomes a function with one string parameter, so that every
 * model supports it. The output has calls of the custom tool again: see `CustomCallWriter`.
 */
function functionOf(tool: Tool): Fields {
  const { type, name, description, parameters, strict } = tool;
  if (type === "custom") {
    return {
      type: "function",
      function: { name, description: customDescription(tool), parameters: CUSTOM_PARAMETERS },
    };
  }
  return {
    type: "function",
    function: {
      name,
      ...(typeof description === "string" && { description }),
      ...(parameters && { parameters }),
      ...(typeof strict === "boolean" && { strict }),
    },
  };
}

function choiceOf(
  choice: NonNullable<ResponsesBody["tool_choice"]>,
  namespaces: NamespaceTools,
): string | Fields {
  if (typeof choice === "string") return choice;
  if (choice.type === NAMESPACE) {
    return choiceOf({ type: "allowed_tools", mode: "required", tools: [choice] }, namespaces);
  }
  if (choice.type !== "allowed_tools") return named(choice) ?? "required";
  const mode = choice.mode === "required" ? "required" : "auto";
  if (choice.mode === "none") return "none";
  const tools = (choice.tools ?? []).flatMap((tool) =>
    tool.type === NAMESPACE ? namespaces.namesIn(tool.name).map(functionNamed) : [named(tool)],
  );
  // Allows any tool, because the tools of a server are not known yet.
  if (tools.includes(undefined)) return mode;
  return { type: "allowed_tools", allowed_tools: { mode, tools } };
}

/** Returns the choice of a function, or undefined if any tool of a server is allowed. */
function named(choice: Pick<ToolChoice, "type" | "name">): Fields | undefined {
  const functionName = functionOfChoice(choice);
  if (functionName === null) return undefined;
  return functionNamed(functionName ?? choice.name);
}

function functionNamed(name: string | undefined): Fields {
  return { type: "function", function: { name } };
}

function textFields({ text }: ResponsesBody): Fields {
  const { format, verbosity } = text ?? {};
  return {
    ...(verbosity && { verbosity }),
    ...(format && format.type !== "text" && { response_format: formatOf(format) }),
  };
}

function formatOf({
  type,
  name = "answer",
  description,
  schema,
  strict,
}: NonNullable<NonNullable<ResponsesBody["text"]>["format"]>): Fields {
  if (type !== "json_schema") return { type };
  return {
    type,
    json_schema: {
      name,
      ...(typeof description === "string" && { description }),
      schema,
      ...(typeof strict === "boolean" && { strict }),
    },
  };
}

/**
 * Returns the reasoning fields. A summary is shown for every model, but only some providers have to be asked
 * for it.
 */
function reasoningFields({ reasoning }: ResponsesBody): Fields {
  const { effort, summary } = reasoning ?? {};
  if (!effort && !summary) return {};
  return { reasoning: { ...(effort && { effort }), ...(summary && { summary }) } };
}

function logprobFields({ top_logprobs: top, include }: ResponsesBody): Fields {
  const wantsLogprobs = include?.includes(LOGPROBS) === true || (top ?? 0) > 0;
  return wantsLogprobs ? { logprobs: true, ...(top && { top_logprobs: top }) } : {};
}
