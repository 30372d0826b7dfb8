import { type Block, GATEWAY_FIELDS, isCustom, type MessagesBody, type Tool } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Shortens the prompt; platforms take it with its beta alone. */
export const CONTEXT_EDITS = "context_management";
export const CONTEXT_EDITS_BETA = "context-management-2025-06-27";

/** What of a request Anthropic's models take on other platforms too, which refuse all members besides. */
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
/** Of tools that the caller describes. */
const TOOL_MEMBERS: ReadonlySet<string> = new Set([
  "type",
  "name",
  "description",
  "input_schema",
  "strict",
  "cache_control",
]);
/** What is served without them is the same: the checks let no other values than the usual ones pass. */
const USUAL: Readonly<Record<string, unknown>> = { inference_geo: "global", speed: "standard" };

/** Names of what only Anthropic itself takes; CONTEXT_EDITS among them. */
export function platformsLack(body: MessagesBody): string[] {
  const names = new Set<string>();
  for (const field in body) {
    const value = body[field];
    if (value === null || value === undefined || value === USUAL[field]) continue;
    if (!FIELDS.has(field) && !GATEWAY_FIELDS.has(field)) names.add(field);
  }
  for (const tool of body.tools ?? []) {
    if (!isCustom(tool)) continue;
    for (const member in tool) if (!TOOL_MEMBERS.has(member)) names.add(`tools.${member}`);
  }
  return [...names];
}

/**
 * The request without what `platformsLack` names. Messages of the role `system` go to the end of the system
 * prompt, as in chats: most models of the platforms refuse them.
 */
export function platformFields(body: MessagesBody, editsContext: boolean): MessagesBody {
  const taken: Record<string, unknown> = {};
  for (const field in body) {
    const isTaken = FIELDS.has(field) || (field === CONTEXT_EDITS && editsContext);
    if (isTaken && body[field] !== null) taken[field] = body[field];
  }
  if (body.tools) taken.tools = body.tools.map((tool) => (isCustom(tool) ? plainTool(tool) : tool));
  const asides = body.messages.filter(({ role }) => role === "system");
  if (asides.length > 0) {
    taken.messages = body.messages.filter(({ role }) => role !== "system");
    const said = [body.system, ...asides.map(({ content }) => content)];
    taken.system = said.flatMap(blocksOf);
  }
  return taken as unknown as MessagesBody;
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
