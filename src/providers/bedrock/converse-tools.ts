import { isFields } from "../../lib/json.ts";
import { cacheControlOf } from "../anthropic/cache-control.ts";
import { closedSchema } from "../anthropic/closed-schema.ts";
import { allowedNames, demandsTool, JSON_TOOL, nameOf } from "../anthropic/tools.ts";
import type { ChatRequestFields } from "../chat-body.ts";
import { type Block, unsupported } from "./converse-media.ts";
import { cachePointOf } from "./converse-messages.ts";
import type { ConverseTraits } from "./model-traits.ts";

type Fields = Readonly<Record<string, unknown>>;

/** How a request demands JSON of a model. */
export type JsonMode =
  | { readonly kind: "none" }
  /** The field `outputConfig.textFormat`. */
  | { readonly kind: "schema"; readonly schema: Fields; readonly name: string | undefined }
  /** The answer is the input of a tool that the model has to call. */
  | { readonly kind: "tool"; readonly schema: Fields };

/**
 * Returns how to demand the JSON that a request asks for. Without a schema, and for models without structured
 * outputs, the answer is the input of a tool.
 */
export function jsonMode(fields: ChatRequestFields, { takesSchemas }: ConverseTraits): JsonMode {
  const format = fields.response_format;
  if (!isFields(format) || format.type === "text") return { kind: "none" };
  if (format.type !== "json_schema") return { kind: "tool", schema: { type: "object" } };
  const { schema: stated, name } = isFields(format.json_schema) ? format.json_schema : {};
  const schema = isFields(stated) ? stated : {};
  if (!takesSchemas) return { kind: "tool", schema: objectSchema(schema) };
  return {
    kind: "schema",
    schema: closedSchema(schema),
    name: typeof name === "string" ? name : undefined,
  };
}

export function outputConfig(mode: JsonMode): Fields | undefined {
  if (mode.kind !== "schema") return undefined;
  const { schema, name } = mode;
  const jsonSchema = { schema: JSON.stringify(schema), ...(name !== undefined && { name }) };
  return { textFormat: { type: "json_schema", structure: { jsonSchema } } };
}

/**
 * Returns `toolConfig`
 * (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolConfiguration.html). Returns
 * undefined if the request offers no tools, or forbids calls, which Converse cannot express otherwise.
 */
export function toolConfig(
  fields: ChatRequestFields,
  mode: JsonMode,
  traits: ConverseTraits,
): Fields | undefined {
  const { tool_choice: choice } = fields;
  const offered =
    Array.isArray(fields.tools) && choice !== "none" ? (fields.tools as readonly Fields[]) : [];
  const allowed = allowedNames(choice);
  const tools: Block[] = [];
  for (const [index, tool] of offered.entries())
    tools.push(...specOf(tool, index, allowed, traits));
  if (mode.kind === "tool") tools.push(jsonTool(mode.schema));
  const specs = tools.filter(({ toolSpec }) => toolSpec !== undefined).length;
  if (specs === 0) return undefined;
  const toolChoice = choiceOf(choice, mode, specs === 1, traits);
  return { tools, ...(toolChoice !== undefined && { toolChoice }) };
}

function choiceOf(
  choice: unknown,
  mode: JsonMode,
  isAlone: boolean,
  { tools }: ConverseTraits,
): Fields | undefined {
  if (mode.kind === "tool") {
    return isAlone && tools === "named" ? { tool: { name: JSON_TOOL } } : { any: {} };
  }
  if (demandsTool(choice)) {
    const isNamed = isFields(choice) && choice.type !== "allowed_tools";
    return isNamed ? { tool: { name: nameOf(choice) } } : { any: {} };
  }
  return choice === "auto" || isFields(choice) ? { auto: {} } : undefined;
}

/** Returns true if the request names the tool that the model has to call. */
export function namesTool(choice: unknown): boolean {
  return isFields(choice) && choice.type !== "allowed_tools" && demandsTool(choice);
}

/** Returns the tool and, after it, its cache point. Returns an empty list if the tool is not allowed. */
function specOf(
  tool: Fields,
  index: number,
  allowed: ReadonlySet<string> | undefined,
  { takesSchemas, cachePoints }: ConverseTraits,
): Block[] {
  const { function: definition } = tool;
  if (!isFields(definition)) throw unsupported(`tools.${index}`, "tools that are not functions");
  const { name, description, parameters, strict } = definition;
  if (allowed !== undefined && !allowed.has(String(name))) return [];
  const schema = objectSchema(isFields(parameters) ? parameters : { properties: {} });
  const isStrict = strict === true && takesSchemas;
  const toolSpec = {
    name,
    ...(typeof description === "string" && description !== "" && { description }),
    inputSchema: { json: isStrict ? closedSchema(schema) : schema },
    ...(isStrict && { strict: true }),
  };
  const cacheControl = cacheControlOf(tool) ?? cacheControlOf(definition);
  const hasPoint = cacheControl !== undefined && cachePoints === "anywhere";
  const point = hasPoint ? cachePointOf(cacheControl.ttl, cachePoints) : undefined;
  return point === undefined ? [{ toolSpec }] : [{ toolSpec }, point];
}

function jsonTool(schema: Fields): Block {
  return {
    toolSpec: {
      name: JSON_TOOL,
      description: "Gives the answer, which has to be JSON, as the input of this tool.",
      inputSchema: { json: schema },
    },
  };
}

/** Returns the schema with its type, which Bedrock requires and OpenAI does not. */
function objectSchema(schema: Fields): Fields {
  return schema.type === undefined ? { type: "object", ...schema } : schema;
}
