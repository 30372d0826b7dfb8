import { isFields } from "../../../lib/json.ts";
import {
  AS_ITEMS,
  BodyRender,
  type ChatRequestFields,
  type ItemsRequest,
  type RenderedBody,
} from "../../chat-body.ts";
import { inputItems, requestItems, unsupported } from "./input-items.ts";

type Fields = Readonly<Record<string, unknown>>;

interface RenderOptions {
  readonly model: string;
  readonly stream: boolean;
}

/** The smallest output limit that OpenAI accepts. */
const LEAST_OUTPUT_TOKENS = 16;

/** Fields that have another form in this API, or that control the form of chat answers. */
const RESHAPED: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "stream_options",
  "store",
  "max_tokens",
  "tools",
  "tool_choice",
  "response_format",
  "verbosity",
  "reasoning",
  "reasoning_effort",
  "logprobs",
  "modalities",
  "metadata",
  "n",
]);

/**
 * Builds the body of a /responses request from a chat request. OpenAI stores nothing: the reasoning is returned
 * encrypted.
 */
export const responsesBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, { model, stream }: RenderOptions): RenderedBody => {
    const { max_tokens: limit, reasoning, reasoning_effort: effort, logprobs } = fields;
    const body: Record<string, unknown> = {};
    for (const name in fields) if (!RESHAPED.has(name)) body[name] = fields[name];
    const items = fields[AS_ITEMS];
    const include = ["reasoning.encrypted_content"];
    if (logprobs === true) include.push("message.output_text.logprobs");
    Object.assign(body, {
      model,
      stream,
      ...(stream && { stream_options: { include_obfuscation: false } }),
      store: false,
      include,
      ...(items === undefined
        ? { input: inputItems(fields.messages as readonly Fields[]), ...toolFields(fields) }
        : itemFields(items)),
    });
    for (const name of items?.include ?? []) if (!include.includes(name)) include.push(name);
    if (typeof limit === "number") body.max_output_tokens = Math.max(limit, LEAST_OUTPUT_TOKENS);
    const text = textFields(fields);
    if (text !== undefined) body.text = text;
    const thinking = thinkingOf(reasoning, effort);
    if (thinking !== undefined) body.reasoning = thinking;
    return { body: JSON.stringify(body) };
  },
);

function itemFields(items: ItemsRequest): Fields {
  const { input, tools, toolChoice, maxToolCalls, truncation } = items;
  return {
    input: requestItems(input),
    ...(tools.length > 0 && { tools }),
    ...(toolChoice !== undefined && toolChoice !== null && { tool_choice: toolChoice }),
    ...(maxToolCalls !== undefined && { max_tool_calls: maxToolCalls }),
    ...(truncation !== undefined && { truncation }),
  };
}

function toolFields({ tools, tool_choice: choice }: ChatRequestFields): Fields {
  const offered = Array.isArray(tools) ? (tools as readonly Fields[]) : [];
  return {
    ...(offered.length > 0 && { tools: offered.map(toolOf) }),
    ...(choice !== undefined && choice !== null && { tool_choice: choiceOf(choice) }),
  };
}

function toolOf(tool: Fields, at: number): Fields {
  if (!isFields(tool.function)) throw unsupported(`tools.${at}`, "tools that are not functions");
  const { name, description, parameters, strict } = tool.function;
  return {
    type: "function",
    name,
    ...(typeof description === "string" && { description }),
    parameters: parameters ?? { type: "object", properties: {} },
    // Functions are not strict by default in chats, and strict by default here.
    strict: strict ?? false,
  };
}

function choiceOf(choice: unknown): unknown {
  if (!isFields(choice)) return choice;
  if (isFields(choice.function)) return { type: "function", name: choice.function.name };
  if (!isFields(choice.allowed_tools)) return choice;
  const { mode, tools } = choice.allowed_tools;
  const allowed = Array.isArray(tools) ? (tools as readonly Fields[]) : [];
  return { type: "allowed_tools", mode, tools: allowed.map(choiceOf) };
}

function textFields({ response_format: format, verbosity }: ChatRequestFields): Fields | undefined {
  const shape = formatOf(format);
  if (shape === undefined && verbosity === undefined) return undefined;
  return {
    ...(shape !== undefined && { format: shape }),
    ...(verbosity !== undefined && { verbosity }),
  };
}

function formatOf(format: unknown): Fields | undefined {
  if (!isFields(format)) return undefined;
  if (format.type !== "json_schema" || !isFields(format.json_schema)) return { type: format.type };
  const { name, description, schema, strict } = format.json_schema;
  return {
    type: "json_schema",
    name,
    ...(description !== undefined && { description }),
    schema,
    ...(strict !== undefined && { strict }),
  };
}

/**
 * Returns the reasoning options. A summary is only requested if the caller asks for one, because OpenAI gives summaries
 * only to verified organizations.
 */
function thinkingOf(reasoning: unknown, effort: unknown): Fields | undefined {
  const options = isFields(reasoning) ? reasoning : {};
  const stated = options.effort ?? effort;
  const { summary } = options;
  if (typeof stated !== "string" && typeof summary !== "string") return undefined;
  return {
    ...(typeof stated === "string" && { effort: stated }),
    ...(typeof summary === "string" && { summary }),
  };
}
