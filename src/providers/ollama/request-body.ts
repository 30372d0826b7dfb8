import { isFields } from "../../lib/json.ts";
import { BodyRender, type ChatRequestFields, type RenderedBody } from "../chat-body.ts";
import { OPTION_NAMES } from "./chat-fields.ts";
import { ollamaMessages, unsupported } from "./messages.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface RenderOptions {
  readonly model: string;
  readonly stream: boolean;
}

/**
 * Renders a chat request for Ollama's /api/chat. Ollama rejects a prompt longer than the context that the
 * server has given the model. Without `truncate: false` it would silently drop the beginning of the prompt.
 */
export const ollamaBody = new BodyRender(
  import.meta.url,
  (fields: ChatRequestFields, { model, stream }: RenderOptions): RenderedBody => {
    const tools = toolsOf(fields);
    const format = formatOf(fields.response_format);
    const think = thinkOf(fields);
    const body = {
      model,
      messages: ollamaMessages(fields.messages as readonly Fields[]),
      stream,
      truncate: false,
      ...(tools.length > 0 && { tools }),
      ...(format !== undefined && { format }),
      ...(think !== undefined && { think }),
      ...(fields.keep_alive !== undefined && { keep_alive: fields.keep_alive }),
      ...(fields.logprobs === true && { logprobs: true }),
      ...(fields.logprobs === true && { top_logprobs: fields.top_logprobs ?? 0 }),
      options: optionsOf(fields),
    };
    return { body: JSON.stringify(body) };
  },
);

/**
 * Returns the caller's `options` and the options with an OpenAI field. If both set an option, the field
 * counts.
 */
function optionsOf(fields: ChatRequestFields): Fields {
  const options: Record<string, unknown> = isFields(fields.options) ? { ...fields.options } : {};
  // The gateway sets the output limit, because the hold is for that limit.
  if (options.num_predict !== undefined) {
    throw unsupported("options.num_predict", "an output limit other than max_tokens");
  }
  for (const name in OPTION_NAMES) {
    if (fields[name] !== undefined) options[OPTION_NAMES[name]!] = fields[name];
  }
  const stops = (Array.isArray(fields.stop) ? fields.stop : [fields.stop]).filter(Boolean);
  if (stops.length > 0) options.stop = stops;
  return options;
}

/** Returns the tools to offer. Leaves out tools that the choice does not allow. */
function toolsOf({ tools, tool_choice: choice }: ChatRequestFields): Fields[] {
  if (!Array.isArray(tools) || choice === "none") return [];
  const allowed = isFields(choice) && isFields(choice.allowed_tools) ? choice.allowed_tools : {};
  const names = Array.isArray(allowed.tools)
    ? allowed.tools.map((tool) => (isFields(tool.function) ? tool.function.name : undefined))
    : undefined;
  return tools
    .map(({ type, function: definition }: Fields) => {
      const { name, description, parameters } = isFields(definition) ? definition : {};
      return { type, function: { name, description, parameters: parameters ?? EMPTY } };
    })
    .filter((tool) => names === undefined || names.includes(tool.function.name));
}

const EMPTY = { type: "object", properties: {} };

function formatOf(format: unknown): unknown {
  if (!isFields(format) || format.type === "text") return undefined;
  const schema = isFields(format.json_schema) ? format.json_schema.schema : undefined;
  return isFields(schema) ? schema : "json";
}

const LEVELS: Readonly<Record<string, string | false>> = {
  none: false,
  minimal: "low",
  low: "low",
  medium: "medium",
  high: "high",
  xhigh: "max",
  max: "max",
};

/**
 * Returns `think` for `reasoning` (OpenRouter's form), `reasoning_effort` (OpenAI's form), or Ollama's own
 * `think`.
 */
function thinkOf({ reasoning, reasoning_effort: stated, think }: ChatRequestFields): unknown {
  const { effort = stated, enabled } = isFields(reasoning) ? reasoning : {};
  if (enabled === false) return false;
  if (typeof effort === "string") return LEVELS[effort] ?? effort;
  return enabled === true ? true : think;
}
