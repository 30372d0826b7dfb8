import { type Block, GATEWAY_FIELDS, isCustom, type MessagesBody, type Tool } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The field that shortens the prompt. Platforms accept it only with its beta. */
export const CONTEXT_EDITS = "context_management";
export const CONTEXT_EDITS_BETA = "context-management-2025-06-27";

/** Fields that Anthropic's models accept on other platforms. Platforms reject all other fields. */
const FIELDS: ReadonlySet<string> = new Set([
  "messages",
  "system",
  "max_tokens",
  "stop_sequences",
  "temperature",
  "top_p",
  "top_k",
  "tools",
  "tool_choice",
  "thinking",
  "output_config",
  "metadata",
  "cache_control",
]);
/** Members of tools that the caller describes. */
const TOOL_MEMBERS: ReadonlySet<string> = new Set([
  "type",
  "name",
  "description",
  "input_schema",
  "strict",
  "cache_control",
]);
/** Values that platforms have by default, so that the field can be left out. The checks allow no other values. */
const DEFAULTS: Readonly<Record<string, unknown>> = { inference_geo: "global", speed: "standard" };

/** Returns the names of parts that only Anthropic itself accepts, including CONTEXT_EDITS. */
export function unsupportedByPlatforms(body: MessagesBody): string[] {
  const names = new Set<string>();
  for (const field in body) {
    const value = body[field];
    if (value === null || value === undefined || value === DEFAULTS[field]) continue;
    if (!FIELDS.has(field) && !GATEWAY_FIELDS.has(field)) names.add(field);
  }
  for (const tool of body.tools ?? []) {
    if (!isCustom(tool)) continue;
    for (const member in tool) if (!TOOL_MEMBERS.has(member)) names.add(`tools.${member}`);
  }
  return [...names];
}

/**
 * Returns the request without the parts that `anthropicOnly` names. Messages with the role `system` move to
 * the end of the system prompt, as in chats, because most models of the platforms reject them.
 */
export function platformFields(body: MessagesBody, editsContext: boolean): MessagesBody {
  const supported: Record<string, unknown> = {};
  for (const field in body) {
    const isSupported = FIELDS.has(field) || (field === CONTEXT_EDITS && editsContext);
    if (isSupported && body[field] !== null) supported[field] = body[field];
  }
  if (body.tools)
    supported.tools = body.tools.map((tool) => (isCustom(tool) ? plainTool(tool) : tool));
  const asides = body.messages.filter(({ role }) => role === "system");
  if (asides.length > 0) {
    supported.messages = body.messages.filter(({ role }) => role !== "system");
    const systemTexts = [body.system, ...asides.map(({ content }) => content)];
    supported.system = systemTexts.flatMap(blocksOf);
  }
  return supported as unknown as MessagesBody;
}

function plainTool(tool: Tool): Tool {
  const plain: Record<string, unknown> = {};
  for (const member in tool) if (TOOL_MEMBERS.has(member)) plain[member] = tool[member];
  return plain as Fields as Tool;
}

function blocksOf(content: string | readonly Block[] | null | undefined): readonly Block[] {
  if (typeof content !== "string") return content ?? [];
  return content === "" ? [] : [{ type: "text", text: content }];
}
