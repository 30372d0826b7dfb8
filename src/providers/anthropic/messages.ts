import { isFields, jsonValue } from "../../lib/json.ts";
import { cacheControlOf } from "./cache-control.ts";
import { type Block, blocksOf, unsupported } from "./content-parts.ts";
import { thinkingOf } from "./reasoning-details.ts";

type Fields = Readonly<Record<string, unknown>>;

interface Turn {
  readonly role: "user" | "assistant";
  readonly content: Block[];
}

export interface Prompt {
  readonly system: readonly Block[];
  readonly messages: readonly Turn[];
}

/**
 * OpenAI's messages as Anthropic's: system and developer messages, wherever they stand, become the system
 * prompt in their order; results of tools go into the user's turn behind the calls; and messages of one side
 * that follow one another are one turn. Throws ProviderFailure that names what has no counterpart.
 */
export function promptOf(messages: readonly Fields[]): Prompt {
  const system: Block[] = [];
  const turns: Turn[] = [];
  for (const [at, message] of messages.entries()) {
    const blocks = withCacheControl(message, blocksOfMessage(message, `messages.${at}`));
    const { role } = message;
    // One by one: there may be more blocks than a call can have arguments.
    if (role === "system" || role === "developer") {
      for (const block of blocks) system.push(block);
    } else add(turns, role === "assistant" ? "assistant" : "user", blocks);
  }
  trimEnd(turns.at(-1));
  return { system, messages: turns };
}

function add(turns: Turn[], role: Turn["role"], blocks: readonly Block[]): void {
  const last = turns.at(-1);
  if (blocks.length === 0) return;
  if (last?.role === role) {
    for (const block of blocks) last.content.push(block);
  } else turns.push({ role, content: [...blocks] });
}

function blocksOfMessage(message: Fields, place: string): Block[] {
  switch (message.role) {
    case "assistant":
      return blocksOfAnswer(message, place);
    case "tool":
      return [resultOf(message, place)];
    case "function":
      throw unsupported(`${place}.role`, "messages of the role function");
    default:
      return blocksOf(message.content, `${place}.content`);
  }
}

function resultOf(message: Fields, place: string): Block {
  const blocks = blocksOf(message.content, `${place}.content`);
  const isText = typeof message.content === "string";
  return {
    type: "tool_result",
    tool_use_id: callId(message.tool_call_id),
    ...(blocks.length > 0 && { content: isText ? message.content : blocks }),
  };
}

/**
 * An earlier answer. The indices of thinking blocks are those that they had among all blocks of the answer, so
 * text and calls go into the gaps, in their order, and behind the last of them.
 */
function blocksOfAnswer(message: Fields, place: string): Block[] {
  const others = [
    ...blocksOf(message.content, `${place}.content`),
    ...callsOf(message.tool_calls, place),
  ];
  const blocks: Block[] = [];
  for (const { index, block } of thinkingOf(message)) {
    while (index !== undefined && blocks.length < index && others.length > 0) {
      blocks.push(others.shift()!);
    }
    blocks.push(block);
  }
  return [...blocks, ...others];
}

function callsOf(calls: unknown, place: string): Block[] {
  if (!Array.isArray(calls)) return [];
  return calls.map((call: Fields, at) => {
    if (!isFields(call.function)) {
      throw unsupported(`${place}.tool_calls.${at}`, "calls of what is no function");
    }
    const { name, arguments: text } = call.function;
    return { type: "tool_use", id: callId(call.id), name, input: inputOf(text) };
  });
}

/** What a model wrote that is no JSON object comes back in the form that Anthropic recommends for that. */
function inputOf(text: unknown): Fields {
  if (text === undefined || text === "") return {};
  const input = jsonValue(String(text));
  return isFields(input) ? input : { INVALID_JSON: String(text) };
}

/** Other providers have ids with characters that Anthropic refuses. */
function callId(id: unknown): string {
  return String(id ?? "").replace(/[^a-zA-Z0-9_-]/g, "_");
}

/** A breakpoint of the whole message is one behind its last block; thinking takes none. */
function withCacheControl(message: Fields, blocks: Block[]): Block[] {
  const cacheControl = cacheControlOf(message);
  const last = blocks.at(-1);
  if (cacheControl === undefined || last === undefined || THINKING.has(last.type)) return blocks;
  last.cache_control ??= cacheControl;
  return blocks;
}

const THINKING: ReadonlySet<string> = new Set(["thinking", "redacted_thinking"]);

/** The beginning of an answer that the model is to go on with must not end in white space. */
function trimEnd(turn: Turn | undefined): void {
  const last = turn?.content.at(-1);
  if (turn?.role !== "assistant" || last?.type !== "text") return;
  const text = String(last.text).trimEnd();
  if (text === "") turn.content.pop();
  else last.text = text;
}
