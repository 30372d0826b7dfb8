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
 * Converts OpenAI's messages to Anthropic's. System and developer messages, at any position, become the
 * system prompt in their order. Tool results go into the user's turn after the calls. Consecutive messages of
 * one side become one turn. Throws ProviderFailure that names a part without a counterpart.
 */
export function promptOf(messages: readonly Fields[]): Prompt {
  const system: Block[] = [];
  const turns: Turn[] = [];
  for (const [index, message] of messages.entries()) {
    const blocks = withCacheControl(message, blocksOfMessage(message, `messages.${index}`));
    const { role } = message;
    // Pushes blocks singly: there can be more blocks than a function call can have arguments.
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

function blocksOfMessage(message: Fields, path: string): Block[] {
  switch (message.role) {
    case "assistant":
      return blocksOfAnswer(message, path);
    case "tool":
      return [resultOf(message, path)];
    case "function":
      throw unsupported(`${path}.role`, "messages of the role function");
    default:
      return blocksOf(message.content, `${path}.content`);
  }
}

function resultOf(message: Fields, path: string): Block {
  const blocks = blocksOf(message.content, `${path}.content`);
  const isText = typeof message.content === "string";
  return {
    type: "tool_result",
    tool_use_id: callId(message.tool_call_id),
    ...(blocks.length > 0 && { content: isText ? message.content : blocks }),
  };
}

/**
 * Returns the blocks of an earlier answer. The index of a thinking block is its position among all blocks of
 * the answer. Text and calls fill the gaps in their order, and then follow the last thinking block.
 */
function blocksOfAnswer(message: Fields, path: string): Block[] {
  const others = [
    ...blocksOf(message.content, `${path}.content`),
    ...callsOf(message.tool_calls, path),
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

function callsOf(calls: unknown, path: string): Block[] {
  if (!Array.isArray(calls)) return [];
  return calls.map((call: Fields, index) => {
    if (!isFields(call.function)) {
      throw unsupported(`${path}.tool_calls.${index}`, "calls that are not functions");
    }
    const { name, arguments: text } = call.function;
    return { type: "tool_use", id: callId(call.id), name, input: inputOf(text) };
  });
}

/**
 * Returns the input of a call. Arguments that are not a JSON object are wrapped in the form that Anthropic
 * recommends for them.
 */
function inputOf(text: unknown): Fields {
  if (text === undefined || text === "") return {};
  const input = jsonValue(String(text));
  return isFields(input) ? input : { INVALID_JSON: String(text) };
}

/** Returns a call id that Anthropic accepts: it rejects some characters of other providers' ids. */
function callId(id: unknown): string {
  return String(id ?? "").replace(/[^a-zA-Z0-9_-]/g, "_");
}

/** Moves the breakpoint of a message to its last block. Thinking cannot carry a breakpoint. */
function withCacheControl(message: Fields, blocks: Block[]): Block[] {
  const cacheControl = cacheControlOf(message);
  const last = blocks.at(-1);
  if (cacheControl === undefined || last === undefined || THINKING.has(last.type)) return blocks;
  last.cache_control ??= cacheControl;
  return blocks;
}

const THINKING: ReadonlySet<string> = new Set(["thinking", "redacted_thinking"]);

/** Removes trailing white space, which Anthropic rejects, from an answer that the model is to continue. */
function trimEnd(turn: Turn | undefined): void {
  const last = turn?.content.at(-1);
  if (turn?.role !== "assistant" || last?.type !== "text") return;
  const text = String(last.text).trimEnd();
  if (text === "") turn.content.pop();
  else last.text = text;
}
