import { isFields } from "../../lib/json.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import { cacheControlOf } from "./cache-control.ts";
import { closedSchema } from "./closed-schema.ts";
import { unsupported } from "./content-parts.ts";
import type { ClaudeTraits } from "./model-traits.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The tool whose input is the answer if JSON cannot be demanded otherwise. */
export const JSON_TOOL = "answer_in_json";

/** How a request demands JSON of a model. */
export type JsonMode =
  | { readonly kind: "none" }
  /** The field `output_config.format`. */
  | { readonly kind: "schema"; readonly schema: Fields }
  /** The answer is the input of a tool that the model has to call. */
  | { readonly kind: "tool"; readonly schema: Fields };

/**
 * Returns how to demand the JSON that a request asks for. Models with structured outputs get the schema.
 * Without a schema, or from an older model, the answer is the input of a tool: Anthropic has no other way to
 * demand JSON.
 */
export function jsonMode(fields: ChatRequestFields, traits: ClaudeTraits): JsonMode {
  const format = fields.response_format;
  if (!isFields(format) || format.type === "text") return { kind: "none" };
  if (format.type !== "json_schema") return { kind: "tool", schema: { type: "object" } };
  const { schema: stated } = isFields(format.json_schema) ? format.json_schema : {};
  const schema = isFields(stated) ? stated : {};
  return traits.takesSchemas
    ? { kind: "schema", schema: closedSchema(schema) }
    : { kind: "tool", schema: objectSchema(schema) };
}

/** Returns true if the model has to call a tool. A model that thinks cannot be forced to. */
export function forcesTool(fields: ChatRequestFields, traits: ClaudeTraits): boolean {
  return demandsTool(fields.tool_choice) || jsonMode(fields, traits).kind === "tool";
}

export function demandsTool(choice: unknown): boolean {
  if (choice === "required") return true;
  if (!isFields(choice)) return false;
  if (choice.type !== "allowed_tools") return true;
  return isFields(choice.allowed_tools) && choice.allowed_tools.mode === "required";
}

export interface ToolFields {
  readonly tools?: readonly Record<string, unknown>[];
  readonly tool_choice?: Fields;
}

/** Returns `tools` and `tool_choice` in Anthropic's form. */
export function toolFields(
  fields: ChatRequestFields,
  mode: JsonMode,
  traits: ClaudeTraits,
): ToolFields {
  const offered = Array.isArray(fields.tools) ? (fields.tools as readonly Fields[]) : [];
  const allowed = allowedNames(fields.tool_choice);
  const tools = offered
    .map((tool, index) => toolOf(tool, index, traits))
    .filter(({ name }) => allowed === undefined || allowed.has(String(name)));
  if (mode.kind === "tool") tools.push(jsonTool(mode.schema));
  if (tools.length === 0) return {};
  const isSerial = fields.parallel_tool_calls === false || mode.kind === "tool";
  const choice = choiceOf(fields.tool_choice, mode, tools.length);
  // If the choice forbids tools, `disable_parallel_tool_use` has no meaning.
  if (!isSerial || choice?.type === "none") {
    return choice === undefined ? { tools } : { tools, tool_choice: choice };
  }
  return { tools, tool_choice: { ...(choice ?? AUTO), disable_parallel_tool_use: true } };
}

const AUTO = { type: "auto" };

function choiceOf(choice: unknown, mode: JsonMode, tools: number): Fields | undefined {
  if (mode.kind === "tool") {
    const isAlone = tools === 1 || choice === "none";
    if (isAlone) return { type: "tool", name: JSON_TOOL };
    // The model has to call one of the caller's tools or give the answer.
    if (!isFields(choice) || choice.type === "allowed_tools") return { type: "any" };
  }
  if (choice === "none") return { type: "none" };
  if (choice === "auto") return AUTO;
  if (choice === "required") return { type: "any" };
  if (!isFields(choice)) return undefined;
  if (choice.type === "allowed_tools") return demandsTool(choice) ? { type: "any" } : AUTO;
  return { type: "tool", name: nameOf(choice) };
}

/** Returns the name of the function that a tool or a tool choice describes. */
export function nameOf(holder: Fields): string {
  return String(isFields(holder.function) ? holder.function.name : undefined);
}

/** Returns the names of the tools that a choice allows, or undefined if it has no list of tools. */
export function allowedNames(choice: unknown): ReadonlySet<string> | undefined {
  if (!isFields(choice) || !isFields(choice.allowed_tools)) return undefined;
  const { tools } = choice.allowed_tools;
  return new Set(Array.isArray(tools) ? tools.filter(isFields).map(nameOf) : []);
}

function toolOf(
  tool: Fields,
  index: number,
  { takesSchemas }: ClaudeTraits,
): Record<string, unknown> {
  const { function: definition } = tool;
  if (!isFields(definition)) throw unsupported(`tools.${index}`, "tools that are not functions");
  const { name, description, parameters, strict } = definition;
  const schema = objectSchema(isFields(parameters) ? parameters : { properties: {} });
  const isStrict = strict === true && takesSchemas;
  const cacheControl = cacheControlOf(tool) ?? cacheControlOf(definition);
  return {
    name,
    ...(typeof description === "string" && { description }),
    input_schema: isStrict ? closedSchema(schema) : schema,
    ...(isStrict && { strict: true }),
    ...(cacheControl !== undefined && { cache_control: cacheControl }),
  };
}

function jsonTool(schema: Fields): Record<string, unknown> {
  return {
    name: JSON_TOOL,
    description: "Gives the answer, which has to be JSON, as the input of this tool.",
    input_schema: schema,
  };
}

/** Returns the schema with its type, which Anthropic requires and OpenAI does not. */
function objectSchema(schema: Fields): Fields {
  return schema.type === undefined ? { type: "object", ...schema } : schema;
}
