import { createCheck } from "../../../http/validate.ts";
import { isFields } from "../../../lib/json.ts";
import type { Preset } from "../../definitions/definition-cache.ts";
import { isOpenIn, membersOfPreset } from "../fill-preset.ts";
import type { ResponsesBody } from "./request.ts";
import { responsesBody } from "./schema.ts";

type Fields = Readonly<Record<string, unknown>>;

export const checkResponses = createCheck(responsesBody, "invalid_body", "Request body");

/**
 * Returns the body with the members of a preset, which are named as in chat completions, in the form of this
 * API. Members without a counterpart keep their name, and the plan lists them as left out.
 */
export function filledResponses(
  { preset: _, ...body }: ResponsesBody,
  preset: Preset,
): ResponsesBody {
  const isOpen = isOpenIn(body);
  const members = membersOfPreset(preset, (field) => isOpen(NAMES[field] ?? field));
  const filled: Record<string, unknown> = { ...body };
  for (const [field, value] of Object.entries(members)) {
    const shape = SHAPES[field];
    if (shape !== undefined) Object.assign(filled, shape(value as never, body));
    else if (!IMPLIED.has(field)) filled[NAMES[field] ?? field] = value;
  }
  if (preset.system !== null && isOpen("instructions")) filled.instructions = preset.system;
  return filled as unknown as ResponsesBody;
}

const NAMES: Readonly<Record<string, string>> = {
  max_tokens: "max_output_tokens",
  max_completion_tokens: "max_output_tokens",
};
/** Members that another member implies: `top_logprobs` implies `logprobs`. */
const IMPLIED: ReadonlySet<string> = new Set(["logprobs"]);

const SHAPES: Readonly<Record<string, (value: never, body: ResponsesBody) => Fields>> = {
  tools: (tools: readonly { type: string; function?: Fields }[]) => ({
    tools: tools.map(({ function: offered, ...tool }) => ({ ...tool, ...offered })),
  }),
  tool_choice: (choice: unknown) => ({ tool_choice: choiceOf(choice) }),
  response_format: (format: Fields, { text }) => {
    const schema = isFields(format.json_schema) ? format.json_schema : {};
    return text?.format ? {} : { text: { ...text, format: { ...schema, type: format.type } } };
  },
  reasoning: ({ effort }: { effort?: string | null }) => (effort ? { reasoning: { effort } } : {}),
};

function choiceOf(choice: unknown): unknown {
  if (!isFields(choice)) return choice;
  const { type, function: named, custom, allowed_tools: allowed } = choice;
  if (isFields(allowed)) {
    const { mode, tools } = allowed;
    return { type, mode, tools: (tools as readonly Fields[]).map(choiceOf) };
  }
  return { type, ...(isFields(named) && named), ...(isFields(custom) && custom) };
}
