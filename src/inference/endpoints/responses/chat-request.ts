import { CUSTOM_PARAMETERS, customDescription } from "../chat-completions/custom-tools.ts";
import { type ChatRequest, ITEM_FORM } from "../chat-completions/request.ts";
import { chatMessages } from "./chat-messages.ts";
import { itemForm } from "./item-form.ts";
import { turnItems } from "./item-references.ts";
import { NAMESPACE, NamespaceTools } from "./namespace-tools.ts";
import {
  chosenHere,
  isOffered,
  isRunHere,
  type ResponsesBody,
  type ResponsesTurn,
  type Tool,
  type ToolChoice,
} from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** A request as the chat call takes it, and what of it has no counterpart there. */
export interface ChatTranslation {
  readonly request: ChatRequest;
  /** Names of fields, tools and types of items that are left out. */
  readonly untranslated: readonly string[];
  readonly namespaces: NamespaceTools;
}

/** Members of the same name and meaning. */
const SAME = [
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

/** Members that are translated, or that the gateway itself does. */
const TRANSLATED: ReadonlySet<string> = new Set([
  ...SAME,
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
  // Of tools that the gateway runs.
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

/** What `include` may ask for, and a chat answer has. */
export const LOGPROBS = "message.output_text.logprobs";

export function chatRequestOf(turn: ResponsesTurn): ChatTranslation {
  const { body } = turn;
  const untranslated = new Set<string>();
  for (const field in body) {
    if (body[field] !== null && !TRANSLATED.has(field)) untranslated.add(field);
  }
  // A prompt that is too long is refused: no wire of chats cuts it.
  if (body.truncation === "auto") untranslated.add("truncation");
  if (asksObfuscation(body)) untranslated.add("stream_options.include_obfuscation");
  const runHere = new Set((body.tools ?? []).filter(isRunHere).map(chosenHere));
  const namespaces = new NamespaceTools(body);
  const messages = chatMessages(turnItems(turn), untranslated, runHere, namespaces);
  if (body.instructions) messages.unshift({ role: "system", content: body.instructions });
  const request: ChatRequest = {
    ...kept(body),
    // It may be cancelled, and followed, before it is whole.
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

function kept(body: ResponsesBody): Fields {
  const fields: Record<string, unknown> = {};
  for (const name of SAME) {
    const value = body[name];
    if (value !== undefined && value !== null) fields[name] = value;
  }
  return fields;
}

/** Obfuscation of lengths would have to be the provider's, whose pieces show through. */
function asksObfuscation({ stream_options: options }: ResponsesBody): boolean {
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
    // What the gateway runs is offered when it is made: see `HostedTools`.
    else if (!isRunHere(tool) && tool.type !== NAMESPACE) untranslated.add(`tools.${tool.type}`);
  }
  for (const { tool } of namespaces.functions.values()) offered.push(tool);
  if (namespaces.lacksSome) untranslated.add(`tools.${NAMESPACE}`);
  if (offered.length === 0 && tools?.some(isRunHere) !== true) return {};
  return {
    ...(offered.length > 0 && { tools: offered.map(functionOf) }),
    ...(choice && { tool_choice: choiceOf(choice, namespaces) }),
    ...(parallel === false && { parallel_tool_calls: false }),
  };
}

/** A custom tool is a function of one text, so that every model has it; the answer's call is turned back. */
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
  const tools = (choice.tools ?? []).flatMap((one) =>
    one.type === NAMESPACE ? namespaces.namesIn(one.name).map(functionNamed) : [named(one)],
  );
  // Whatever a server has: which tools those are is not known yet.
  if (tools.includes(undefined)) return mode;
  return { type: "allowed_tools", allowed_tools: { mode, tools } };
}

/** Undefined where any tool of a server will do. */
function named(choice: Pick<ToolChoice, "type" | "name">): Fields | undefined {
  const here = chosenHere(choice);
  if (here === null) return undefined;
  return functionNamed(here ?? choice.name);
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

/** A summary is shown of any model; only some providers have to be asked for it. */
function reasoningFields({ reasoning }: ResponsesBody): Fields {
  const { effort, summary } = reasoning ?? {};
  if (!effort && !summary) return {};
  return { reasoning: { ...(effort && { effort }), ...(summary && { summary }) } };
}

function logprobFields({ top_logprobs: top, include }: ResponsesBody): Fields {
  const isAsked = include?.includes(LOGPROBS) === true || (top ?? 0) > 0;
  return isAsked ? { logprobs: true, ...(top && { top_logprobs: top }) } : {};
}
