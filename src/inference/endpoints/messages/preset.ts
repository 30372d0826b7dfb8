import { createCheck } from "../../../http/validate.ts";
import { isFields } from "../../../lib/json.ts";
import type { Preset } from "../../definitions/definition-cache.ts";
import { isOpenIn, membersOfPreset } from "../fill-preset.ts";
import { type MessagesBody, WITHOUT_COUNTERPART } from "./request.ts";
import { countBody, messagesBody } from "./schema.ts";

type Fields = Readonly<Record<string, unknown>>;

export const checkMessages = createCheck(messagesBody, "invalid_body", "Request body");
export const checkCount = createCheck(countBody, "invalid_body", "Request body");

/**
 * Returns the body with the members of a preset, translated from chat completions to the Messages API.
 * Members without a counterpart are left out, and listed under WITHOUT_COUNTERPART.
 */
export function filledMessages({ preset: _, ...body }: MessagesBody, preset: Preset): MessagesBody {
  const isOpen = isOpenIn(body);
  const members = membersOfPreset(preset, (field) => isOpen(NAMES[field] ?? field));
  const filled: Record<string, unknown> = { ...body };
  const untranslated: string[] = [];
  for (const [field, value] of Object.entries(members)) {
    const shape = SHAPES[field];
    if (shape !== undefined) Object.assign(filled, shape(value as never, filled));
    else if (SHARED_NAMES.has(field)) filled[field] = value;
    else untranslated.push(field);
  }
  if (preset.system !== null && isOpen("system")) filled.system = preset.system;
  const request = { ...filled, [WITHOUT_COUNTERPART]: untranslated };
  return request as unknown as MessagesBody;
}

/** Members with the same name and meaning in both APIs. */
const SHARED_NAMES: ReadonlySet<string> = new Set([
  "model",
  "models",
  "provider",
  "route_explain",
  "session_id",
  "trace",
  "guardrail",
  "stream",
  "temperature",
  "top_p",
  "top_k",
  "max_tokens",
  "cache_control",
]);

/** The names of chat completion members in this API. */
const NAMES: Readonly<Record<string, string>> = {
  max_completion_tokens: "max_tokens",
  stop: "stop_sequences",
  reasoning: "output_config",
  response_format: "output_config",
  user: "metadata",
};

const SHAPES: Readonly<Record<string, (value: never, filled: Fields) => Fields>> = {
  max_completion_tokens: (limit: number) => ({ max_tokens: limit }),
  stop: (stop: string | readonly string[]) => ({
    stop_sequences: typeof stop === "string" ? [stop] : stop,
  }),
  tools: (tools: readonly { function?: Fields }[]) => ({
    tools: tools.flatMap(({ function: offered }) => (offered ? [toolOf(offered)] : [])),
  }),
  tool_choice: (choice: unknown) => ({ tool_choice: choiceOf(choice) }),
  reasoning: ({ effort }: { effort?: string | null }, filled) =>
    effort ? { output_config: { ...configOf(filled), effort } } : {},
  response_format: (format: Fields, filled) =>
    isFields(format.json_schema)
      ? {
          output_config: {
            ...configOf(filled),
            format: { type: "json_schema", schema: format.json_schema.schema },
          },
        }
      : {},
  metadata: (metadata: Fields, filled) => ({ metadata: { ...metadata, ...metadataOf(filled) } }),
  user: (user: string, filled) => ({ metadata: { ...metadataOf(filled), user_id: user } }),
};

function toolOf({ name, description, parameters }: Fields): Fields {
  return {
    name,
    ...(typeof description === "string" && { description }),
    input_schema: parameters ?? { type: "object", properties: {} },
  };
}

function choiceOf(choice: unknown): Fields {
  if (choice === "none") return { type: "none" };
  if (choice === "required") return { type: "any" };
  const named = isFields(choice) && isFields(choice.function) ? choice.function.name : undefined;
  return named === undefined ? { type: "auto" } : { type: "tool", name: named };
}

function configOf({ output_config: config }: Fields): Fields {
  return isFields(config) ? config : {};
}

function metadataOf({ metadata }: Fields): Fields {
  return isFields(metadata) ? metadata : {};
}
