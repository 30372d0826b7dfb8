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
 * Fields that make the provider run something whose price or number of runs no hold covers. Its `fallbacks`
 * are other models, which the key might not be allowed to use.
 */
const UNPRICED = ["mcp_servers", "container", "fallbacks"];
/** Context edits that shorten the prompt. Others make a model write a summary, which is billed in addition. */
const SHORTENING = /^clear_/;

/** Returns the names of parts that are never sent to a provider, because their price is unknown. */
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
 * Returns the request for a provider of Anthropic's API: the original fields without the gateway's fields,
 * unpriced parts, and reasoning of other providers. The provider sets the model.
 *
 * @param maxTokens the output limit that the hold covers
 */
export function nativeFields(body: MessagesBody, maxTokens: number | undefined): Fields {
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

/** The smallest thinking budget that Anthropic accepts. It must be below the limit of the answer. */
const MIN_BUDGET_TOKENS = 1_024;

function loweredThinking(thinking: Fields, maxTokens: number): Fields {
  if (maxTokens <= MIN_BUDGET_TOKENS) return { type: "disabled" };
  return { ...thinking, budget_tokens: maxTokens - 1 };
}

/**
 * Returns the tools that are sent. If a tool is left out, a search for tools is no longer possible, so no
 * tool is deferred.
 */
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

/**
 * Returns the messages without reasoning of other providers, or undefined if there is none, as in most
 * conversations.
 */
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
