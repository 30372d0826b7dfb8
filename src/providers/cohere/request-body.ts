import { isFields } from "../../lib/json.ts";
import { BodyRender, type ChatRequestFields, type RenderedBody } from "../chat-body.ts";
import { OWN_FIELDS } from "./chat-fields.ts";
import { conversationOf, unsupported } from "./messages.ts";
import { canThink, thinkingOf } from "./thinking.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface RenderOptions {
  readonly model: string;
  readonly modelId: string | undefined;
  readonly stream: boolean;
}

/** Fields that only have another name. */
const RENAMED: Readonly<Record<string, string>> = {
  max_tokens: "max_tokens",
  temperature: "temperature",
  top_p: "p",
  top_k: "k",
  frequency_penalty: "frequency_penalty",
  presence_penalty: "presence_penalty",
  seed: "seed",
};

/** A chat request as Cohere's /v2/chat takes it. */
export const cohereBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, { model, modelId, stream }: RenderOptions): RenderedBody => {
    const { messages, documents } = conversationOf(fields.messages as readonly Fields[]);
    const body: Record<string, unknown> = { model, messages, stream };
    Object.assign(body, toolFields(fields));
    for (const name in RENAMED) {
      if (fields[name] !== undefined) body[RENAMED[name]!] = fields[name];
    }
    for (const name of OWN_FIELDS) if (fields[name] !== undefined) body[name] = fields[name];
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

/** One named tool is the only one that is offered, because Cohere can demand a tool, but not which. */
function toolFields({ tools, tool_choice: choice }: ChatRequestFields): Fields {
  const offered = Array.isArray(tools) ? (tools as readonly Fields[]) : [];
  const allowed = allowedNames(choice);
  const kept = offered
    .map(toolOf)
    .filter((tool) => allowed === undefined || allowed.has(tool.function.name));
  if (kept.length === 0) return {};
  const isStrict = offered.every(({ function: one }) => isFields(one) && one.strict === true);
  const demand = demandOf(choice);
  return {
    tools: kept,
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
  return new Set(holders.map(({ function: one }) => (isFields(one) ? one.name : undefined)));
}

function toolOf(tool: Fields, at: number) {
  if (!isFields(tool.function)) throw unsupported(`tools.${at}`, "tools that are no functions");
  const { name, description, parameters } = tool.function;
  return {
    type: "function",
    function: {
      name,
      ...(typeof description === "string" && { description }),
      // Cohere demands them, where OpenAI lets a function without any leave them out.
      parameters: isFields(parameters) ? parameters : { type: "object", properties: {} },
    },
  };
}

function formatOf(format: unknown): Fields | undefined {
  if (!isFields(format) || format.type === "text") return undefined;
  const schema = isFields(format.json_schema) ? format.json_schema.schema : undefined;
  return { type: "json_object", ...(isFields(schema) && { json_schema: schema }) };
}
