import { isFields } from "../../../lib/json.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { chatMessages } from "./chat-messages.ts";
import { isCustom, type MessagesBody, type Tool } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** A request translated to a chat call, and its parts without a counterpart there. */
export interface ChatTranslation {
  readonly request: ChatRequest;
  /** Names of the fields, and types of the blocks, that are left out. */
  readonly untranslated: readonly string[];
}

/** Members that are translated, or that request nothing that another model could do. */
const TRANSLATED = new Set([
  "model",
  "models",
  "provider",
  "route_explain",
  "session_id",
  "trace",
  "metadata",
  "preset",
  "guardrail",
  "messages",
  "system",
  "max_tokens",
  "stream",
  "stop_sequences",
  "temperature",
  "top_p",
  "top_k",
  "tools",
  "tool_choice",
  "thinking",
  "output_config",
  "output_format",
  "cache_control",
  // Both of its values have the standard price.
  "service_tier",
  "inference_geo",
  "__proto__",
]);

/**
 * Translates a request to the form of the chat call.
 *
 * @param keepsCacheControl true to keep Anthropic's cache breakpoints
 */
export function chatRequestOf(body: MessagesBody, keepsCacheControl: boolean): ChatTranslation {
  const untranslated = new Set<string>();
  for (const field in body) {
    if (body[field] !== null && !TRANSLATED.has(field)) untranslated.add(field);
  }
  const messages = chatMessages(body, keepsCacheControl, untranslated);
  const { user_id: user, ...metadata } = body.metadata ?? {};
  const { stop_sequences: stop, cache_control: cacheControl } = body;
  const request: ChatRequest = {
    ...sharedFields(body),
    ...(Object.keys(metadata).length > 0 && { metadata }),
    ...(typeof user === "string" && { user }),
    messages,
    ...(stop && stop.length > 0 && { stop }),
    ...toolFields(body, keepsCacheControl, untranslated),
    ...reasoningOf(body),
    ...formatOf(body),
    ...(keepsCacheControl && cacheControl && { cache_control: { type: "ephemeral" } }),
  };
  return { request, untranslated: [...untranslated] };
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
  "stream",
  "max_tokens",
  "temperature",
  "top_p",
  "top_k",
] as const;

function sharedFields(body: MessagesBody): Fields {
  const fields: Record<string, unknown> = {};
  for (const name of SHARED_NAMES) {
    const value = body[name];
    if (value !== undefined && value !== null) fields[name] = value;
  }
  return fields;
}

function toolFields(
  { tools, tool_choice: choice }: MessagesBody,
  keepsCacheControl: boolean,
  untranslated: Set<string>,
): Fields {
  const offered = (tools ?? []).filter((tool, at) => {
    if (!isCustom(tool)) untranslated.add(`tools.${at}`);
    return isCustom(tool);
  });
  if (offered.length === 0) return {};
  const chosen = choice && choiceOf(choice.type, choice.name, offered);
  return {
    tools: offered.map((tool) => functionOf(tool, keepsCacheControl)),
    ...(chosen && { tool_choice: chosen }),
    ...(choice?.disable_parallel_tool_use === true && { parallel_tool_calls: false }),
  };
}

function functionOf(tool: Tool, keepsCacheControl: boolean): Fields {
  const { name, description, input_schema: schema, strict, cache_control: cacheControl } = tool;
  const { $schema: _, ...parameters } = schema!;
  return {
    type: "function",
    function: {
      name,
      ...(typeof description === "string" && { description }),
      parameters,
      ...(strict === true && { strict }),
    },
    ...(keepsCacheControl && isFields(cacheControl) && { cache_control: { type: "ephemeral" } }),
  };
}

function choiceOf(
  type: string,
  name: string | undefined,
  offered: readonly Tool[],
): string | Fields | undefined {
  if (type === "any") return "required";
  if (type === "none") return "none";
  const isOffered = type === "tool" && offered.some((tool) => tool.name === name);
  return isOffered ? { type: "function", function: { name } } : undefined;
}

/** Reasoning effort by the minimum share that the thinking budget has of the answer's limit. */
const EFFORT_OF_BUDGET: readonly (readonly [part: number, effort: string])[] = [
  [0.65, "high"],
  [0.35, "medium"],
  [0, "low"],
];
/** Reasoning efforts that most models do not support. */
const HIGHER_EFFORTS = new Set(["xhigh", "max"]);

function reasoningOf({
  thinking,
  output_config: config,
  max_tokens: limit = 0,
}: MessagesBody): Fields {
  const stated = config?.effort;
  const effort = stated && HIGHER_EFFORTS.has(stated) ? "high" : stated;
  if (thinking?.type === "disabled") return { reasoning: { enabled: false } };
  const budget = thinking?.type === "enabled" ? thinking.budget_tokens : undefined;
  if (budget) {
    const derived = EFFORT_OF_BUDGET.find(([part]) => budget >= part * limit)![1];
    return { reasoning: { max_tokens: budget, effort: effort ?? derived } };
  }
  if (effort) return { reasoning: { effort } };
  return thinking ? { reasoning: { enabled: true } } : {};
}

/** Returns the response format of `output_config.format`, formerly `output_format`. */
function formatOf({ output_config: config, output_format: earlier }: MessagesBody): Fields {
  const format = config?.format ?? earlier;
  if (!isFields(format) || format.type !== "json_schema" || !isFields(format.schema)) return {};
  const schema = { name: "answer", schema: format.schema };
  const isStrict = fitsStrictMode(format.schema);
  return {
    response_format: {
      type: "json_schema",
      json_schema: isStrict ? { ...schema, strict: true } : schema,
    },
  };
}

/**
 * Returns true if all objects of a schema are closed and require all their members. OpenAI enforces only such
 * schemas.
 */
function fitsStrictMode(schema: unknown): boolean {
  if (Array.isArray(schema)) return schema.every(fitsStrictMode);
  if (!isFields(schema)) return true;
  const { properties, required, additionalProperties } = schema;
  if (isFields(properties)) {
    const names = Object.keys(properties);
    if (additionalProperties !== false || !Array.isArray(required)) return false;
    if (!names.every((name) => required.includes(name))) return false;
  }
  return Object.values(schema).every(fitsStrictMode);
}
