import { isFields } from "../../lib/json.ts";
import { BodyRender, type ChatRequestFields, type RenderedBody } from "../chat-body.ts";
import { COHERE_FIELDS } from "./chat-fields.ts";
import { conversationOf, unsupported } from "./messages.ts";
import { canThink, thinkingOf } from "./thinking.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface RenderOptions {
  readonly model: string;
  readonly modelId: string | undefined;
  readonly stream: boolean;
}

/** Cohere's names of the fields that it shares with OpenAI. */
const RENAMED: Readonly<Record<string, string>> = {
  max_tokens: "max_tokens",
  temperature: "temperature",
  top_p: "p",
  top_k: "k",
  frequency_penalty: "frequency_penalty",
  presence_penalty: "presence_penalty",
  seed: "seed",
};

/** Renders a chat request for Cohere's /v2/chat. */
export const cohereBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, { model, modelId, stream }: RenderOptions): RenderedBody => {
    const { messages, documents } = conversationOf(fields.messages as readonly Fields[]);
    const body: Record<string, unknown> = { model, messages, stream };
    Object.assign(body, toolFields(fields));
    for (const name in RENAMED) {
      if (fields[name] !== undefined) body[RENAMED[name]!] = fields[name];
    }
    for (const name of COHERE_FIELDS) if (fields[name] !== undefined) body[name] = fields[name];
    const stops = (Array.isArray(fields.stop) ? fields.stop : [fields.stop]).filter(Boolean);
    if (stops.length > 0) body.stop_sequences = stops;
    const format = formatOf(fields.response_format);
    if (format !== undefined) body.response_format = format;
    const thinking = canThink(model, modelId) ? thinkingOf(fields) : undefined;
    if (thinking !== undefined) body.thinking = thinking;
    if (documents.length > 0) {
      body.documents = [...(Array.isArray(body.documents) ? body.documents : []), ...documents];
    }
    return { body: JSON.stringify(body) };
  },
);

/**
 * Returns the tool fields. If the choice names a tool, only that tool is offered: Cohere can demand a tool
 * call but not a specific tool.
 */
function toolFields({ tools, tool_choice: choice }: ChatRequestFields): Fields {
  const offered = Array.isArray(tools) ? (tools as readonly Fields[]) : [];
  const allowed = allowedNames(choice);
  const accepted = offered
    .map(toolOf)
    .filter((tool) => allowed === undefined || allowed.has(tool.function.name));
  if (accepted.length === 0) return {};
  const isStrict = offered.every(
    ({ function: definition }) => isFields(definition) && definition.strict === true,
  );
  const demand = demandOf(choice);
  return {
    tools: accepted,
    ...(isStrict && { strict_tools: true }),
    ...(demand !== undefined && { tool_choice: demand }),
  };
}

function demandOf(choice: unknown): "REQUIRED" | "NONE" | undefined {
  if (choice === "none") return "NONE";
  if (choice === "required") return "REQUIRED";
  if (!isFields(choice)) return undefined;
  if (!isFields(choice.allowed_tools)) return "REQUIRED";
  return choice.allowed_tools.mode === "required" ? "REQUIRED" : undefined;
}

function allowedNames(choice: unknown): ReadonlySet<unknown> | undefined {
  if (!isFields(choice)) return undefined;
  const list = isFields(choice.allowed_tools) ? choice.allowed_tools.tools : [choice];
  const holders = Array.isArray(list) ? list.filter(isFields) : [];
  return new Set(
    holders.map(({ function: definition }) => (isFields(definition) ? definition.name : undefined)),
  );
}

function toolOf(tool: Fields, index: number) {
  if (!isFields(tool.function)) throw unsupported(`tools.${index}`, "tools that are not functions");
  const { name, description, parameters } = tool.function;
  return {
    type: "function",
    function: {
      name,
      ...(typeof description === "string" && { description }),
      // Cohere requires parameters, which OpenAI does not.
      parameters: isFields(parameters) ? parameters : { type: "object", properties: {} },
    },
  };
}

function formatOf(format: unknown): Fields | undefined {
  if (!isFields(format) || format.type === "text") return undefined;
  const schema = isFields(format.json_schema) ? format.json_schema.schema : undefined;
  return { type: "json_object", ...(isFields(schema) && { json_schema: schema }) };
}
