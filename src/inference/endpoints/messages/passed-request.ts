import { isFields } from "../../../lib/json.ts";
import { isMarked } from "./reasoning-mark.ts";
import {
  type Block,
  GATEWAY_FIELDS,
  isRunByCaller,
  type Message,
  type MessagesBody,
  type Tool,
} from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * What has the provider run something, at prices or in numbers that nothing here holds money for: its own
 * `fallbacks` are other models, which the key may not be allowed either.
 */
const UNPRICED = ["mcp_servers", "container", "fallbacks"];
/** Context edits that shorten the prompt; others have a model write a summary of it, billed besides. */
const SHORTENING = /^clear_/;

/** Names of what no provider gets, because its price is not known. */
export function unpricedFields(body: MessagesBody): string[] {
  const names = UNPRICED.filter((name) => body[name] !== undefined && body[name] !== null);
  // Anthropic's fast mode, at several times the price.
  if (typeof body.speed === "string" && body.speed !== "standard") names.push("speed");
  for (const [at, edit] of editsOf(body).entries()) {
    if (!shortens(edit)) names.push(`context_management.edits.${at}`);
  }
  for (const [at, tool] of (body.tools ?? []).entries()) {
    if (!isRunByCaller(tool)) names.push(`tools.${at}`);
  }
  return names;
}

/**
 * The request as a provider of Anthropic's wire gets it: what came, without the gateway's own fields, what has no
 * price, and the reasoning of other wires. The model is set by the provider.
 *
 * @param maxTokens what the hold covers
 */
export function passedFields(body: MessagesBody, maxTokens: number | undefined): Fields {
  const passed: Record<string, unknown> = {};
  for (const field in body) if (!isHeldBack(field, body)) passed[field] = body[field];
  const { tools, metadata, thinking } = body;
  const messages = withoutForeignReasoning(body.messages);
  if (messages !== undefined) passed.messages = messages;
  if (tools) Object.assign(passed, offeredTools(body, tools));
  const edits = editsOf(body);
  if (!edits.every(shortens)) {
    passed.context_management = { ...body.context_management, edits: edits.filter(shortens) };
  }
  if (metadata?.user_id !== undefined) passed.metadata = { user_id: metadata.user_id };
  if (maxTokens === undefined) return passed;
  passed.max_tokens = maxTokens;
  const budget = thinking?.budget_tokens;
  if (maxTokens !== body.max_tokens && budget && budget >= maxTokens) {
    passed.thinking = loweredThinking(thinking, maxTokens);
  }
  return passed;
}

function isHeldBack(field: string, { speed }: MessagesBody): boolean {
  if (field === "speed") return speed !== "standard";
  return GATEWAY_FIELDS.has(field) || UNPRICED.includes(field);
}

/** The least that Anthropic takes as a thinking budget, which has to be below the limit of the answer. */
const MIN_BUDGET_TOKENS = 1_024;

function loweredThinking(thinking: Fields, maxTokens: number): Fields {
  if (maxTokens <= MIN_BUDGET_TOKENS) return { type: "disabled" };
  return { ...thinking, budget_tokens: maxTokens - 1 };
}

/** Where a tool is left out, none can be found by a search for tools any more. */
function offeredTools(body: MessagesBody, tools: readonly Tool[]): Fields {
  const offered = tools.filter(isRunByCaller);
  if (offered.length === tools.length) return {};
  const choice = body.tool_choice;
  const isChosen = choice?.type !== "tool" || offered.some(({ name }) => name === choice.name);
  const mayChoose = offered.length > 0 && isChosen;
  return {
    tools: offered.length === 0 ? undefined : offered.map(({ defer_loading: _, ...tool }) => tool),
    ...(!mayChoose && { tool_choice: undefined }),
  };
}

function editsOf({ context_management: management }: MessagesBody): readonly unknown[] {
  return isFields(management) && Array.isArray(management.edits) ? management.edits : [];
}

function shortens(edit: unknown): boolean {
  return isFields(edit) && typeof edit.type === "string" && SHORTENING.test(edit.type);
}

/** Undefined where there is none, as in most conversations. */
function withoutForeignReasoning(messages: readonly Message[]): Message[] | undefined {
  const holds = ({ content }: Message) => typeof content !== "string" && content.some(isMarked);
  if (!messages.some(holds)) return undefined;
  return messages
    .map((message) => {
      if (!holds(message)) return message;
      const content = (message.content as readonly Block[]).filter((block) => !isMarked(block));
      return { ...message, content };
    })
    .filter(({ content }) => content.length > 0);
}
