import { isFields, jsonValue } from "../../lib/json.ts";
import { type CacheControl, cacheControlOf } from "../anthropic/cache-control.ts";
import { thinkingBlocks } from "../anthropic/reasoning-details.ts";
import { type Block, MediaReader, textBlock, unsupported } from "./converse-media.ts";
import type { ConverseTraits } from "./model-traits.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Format name of the reasoning details that Converse understands. */
export const DETAIL_FORMAT = "amazon-bedrock-v1";

interface Turn {
  readonly role: "user" | "assistant";
  readonly content: Block[];
}

export interface Conversation {
  readonly system: readonly Block[];
  readonly messages: readonly Turn[];
}

const MAX_CALL_ID_CHARACTERS = 64;
const CALL_ID_PREFIX_CHARACTERS = 31;

/**
 * Translates the messages of a chat. System and developer messages, at any position, become the system prompt
 * in their order. Tool results go into the user's turn after the calls. Consecutive messages of one side
 * become one turn. Throws ProviderFailure that names a part without a counterpart.
 *
 * @param offersTools if false, earlier calls and results become text, because Bedrock rejects them without
 * tools
 */
export function conversationOf(
  messages: readonly Fields[],
  traits: ConverseTraits,
  offersTools: boolean,
): Conversation {
  const reader = new MessageReader(traits, offersTools);
  for (const [index, message] of messages.entries()) reader.add(message, `messages.${index}`);
  return reader.conversation;
}

class MessageReader {
  readonly #traits: ConverseTraits;
  readonly #offersTools: boolean;
  readonly #media = new MediaReader();
  readonly #system: Block[] = [];
  readonly #turns: Turn[] = [];

  constructor(traits: ConverseTraits, offersTools: boolean) {
    this.#traits = traits;
    this.#offersTools = offersTools;
  }

  get conversation(): Conversation {
    if (this.#traits.takesSystem || this.#system.length === 0) {
      return { system: this.#system, messages: this.#turns };
    }
    const [first, ...rest] = this.#turns;
    const isUser = first?.role === "user";
    const content = isUser ? [...this.#system, ...first.content] : this.#system;
    const turns = isUser ? rest : this.#turns;
    return { system: [], messages: [{ role: "user", content }, ...turns] };
  }

  add(message: Fields, path: string): void {
    const blocks = this.#blocksOf(message, path);
    const point = this.#cachePoint(message);
    if (point !== undefined && takesPoint(blocks.at(-1), this.#traits)) blocks.push(point);
    const { role } = message;
    // Pushes blocks singly: there can be more blocks than a function call can have arguments.
    if (role === "system" || role === "developer") {
      for (const block of blocks) this.#system.push(block);
    } else this.#addTurn(role === "assistant" ? "assistant" : "user", blocks);
  }

  #addTurn(role: Turn["role"], blocks: readonly Block[]): void {
    const last = this.#turns.at(-1);
    if (blocks.length === 0) return;
    if (last?.role === role) {
      for (const block of blocks) last.content.push(block);
    } else this.#turns.push({ role, content: [...blocks] });
  }

  #blocksOf(message: Fields, path: string): Block[] {
    switch (message.role) {
      case "assistant":
        return this.#answer(message, path);
      case "tool":
        return this.#result(message, path);
      case "function":
        throw unsupported(`${path}.role`, "messages of the role function");
      default:
        return withText(this.#content(message.content, `${path}.content`));
    }
  }

  #content(content: unknown, path: string): Block[] {
    if (!Array.isArray(content)) {
      const block = textBlock(content);
      return block === undefined ? [] : [block];
    }
    const blocks: Block[] = [];
    for (const [index, part] of content.entries()) {
      const block = this.#media.blockOf(part as Fields, `${path}.${index}`);
      if (block === undefined) continue;
      blocks.push(block);
      const point = this.#cachePoint(part);
      if (point !== undefined) blocks.push(point);
    }
    return blocks;
  }

  #cachePoint(holder: unknown): Block | undefined {
    const { cachePoints } = this.#traits;
    const cacheControl = cacheControlOf(holder);
    return cacheControl === undefined ? undefined : cachePointOf(cacheControl.ttl, cachePoints);
  }

  /**
   * Returns the blocks of an earlier answer. The index of a reasoning block is its position among all blocks
   * of the answer. The other blocks fill the gaps.
   */
  #answer(message: Fields, path: string): Block[] {
    const content = this.#content(message.content, `${path}.content`);
    if (content.length === 0)
      content.push(...[textBlock(message.refusal)].filter((block) => block !== undefined));
    const others = [...content, ...this.#calls(message.tool_calls, path)];
    const blocks: Block[] = [];
    let next = 0;
    for (const { index, block } of thinkingBlocks(message.reasoning_details, DETAIL_FORMAT)) {
      while (index !== undefined && blocks.length < index && next < others.length) {
        blocks.push(others[next++]!);
      }
      blocks.push({ reasoningContent: reasoningOf(block) });
    }
    return [...blocks, ...others.slice(next)];
  }

  #calls(calls: unknown, path: string): Block[] {
    if (!Array.isArray(calls)) return [];
    return calls.map((call: Fields, index) => {
      if (!isFields(call.function)) {
        throw unsupported(`${path}.tool_calls.${index}`, "calls that are not functions");
      }
      const { name, arguments: text } = call.function;
      if (!this.#offersTools) return { text: `I called ${name} with ${text || "{}"}.` };
      return { toolUse: { toolUseId: this.#callId(call.id), name, input: inputOf(text) } };
    });
  }

  #callId(id: unknown): string {
    const text = String(id ?? "");
    return this.#traits.hasShortCallIds ? shortCallId(text) : callId(text);
  }

  #result(message: Fields, path: string): Block[] {
    const content = this.#content(message.content, `${path}.content`);
    if (!this.#offersTools) return [{ text: "The call resulted in:" }, ...content];
    const isPoint = (block: Block) => block.cachePoint !== undefined;
    const toolUseId = this.#callId(message.tool_call_id);
    const result = {
      toolResult: { toolUseId, content: content.filter((block) => !isPoint(block)) },
    };
    // A result cannot contain a cache point.
    const point = content.findLast(isPoint);
    return point !== undefined && takesPoint(result, this.#traits) ? [result, point] : [result];
  }
}

/** Returns a cache point, or undefined if the model has none. */
export function cachePointOf(
  ttl: string | undefined,
  cachePoints: ConverseTraits["cachePoints"],
): Block | undefined {
  if (cachePoints === "none") return undefined;
  const isStated = ttl !== undefined && cachePoints === "anywhere";
  return { cachePoint: { type: "default", ...(isStated && { ttl }) } };
}

/** Returns true if a cache point can follow the block. Nova allows none after calls and their results. */
function takesPoint(block: Block | undefined, { cachePoints }: ConverseTraits): boolean {
  if (block === undefined || block.cachePoint !== undefined) return false;
  const isOfTool = block.toolUse !== undefined || block.toolResult !== undefined;
  return cachePoints === "anywhere" || !isOfTool;
}

/** Adds a cache point after the whole prompt, for callers that request caching without positions. */
export function withLastPoint(
  { system, messages }: Conversation,
  cacheControl: CacheControl,
  traits: ConverseTraits,
): Conversation {
  const point = cachePointOf(cacheControl.ttl, traits.cachePoints);
  const last = messages.at(-1);
  if (point === undefined || last === undefined || !takesPoint(last.content.at(-1), traits)) {
    return { system, messages };
  }
  const content = [...last.content, point];
  return { system, messages: [...messages.slice(0, -1), { ...last, content }] };
}

/** Adds a text to a message with a document, because Bedrock demands one. */
function withText(blocks: Block[]): Block[] {
  const document = blocks.find((block) => block.document !== undefined)?.document as
    | Fields
    | undefined;
  if (document === undefined || blocks.some((block) => block.text !== undefined)) return blocks;
  return [...blocks, { text: String(document.name) }];
}

function reasoningOf(block: Fields): Fields {
  if (block.type === "redacted_thinking") return { redactedContent: block.data };
  return { reasoningText: { text: block.thinking, signature: block.signature } };
}

/** Returns the input of a call. Wraps arguments that are not a JSON object in an object. */
function inputOf(text: unknown): Fields {
  if (text === undefined || text === "") return {};
  const input = jsonValue(String(text));
  return isFields(input) ? input : { INVALID_JSON: String(text) };
}

/**
 * Returns a call id that Bedrock accepts: it rejects long ids and some characters of other providers' ids.
 */
function callId(id: string): string {
  const safe = id.replace(/[^a-zA-Z0-9_.:-]/g, "_");
  if (safe.length <= MAX_CALL_ID_CHARACTERS) return safe;
  return `${safe.slice(0, CALL_ID_PREFIX_CHARACTERS)}_${digestOf(safe).slice(0, 32)}`;
}

/** Returns a call id of nine letters and digits, the only form that Mistral's models accept. */
function shortCallId(id: string): string {
  return /^[a-zA-Z0-9]{9}$/.test(id) ? id : digestOf(id).slice(0, 9);
}

function digestOf(text: string): string {
  return new Bun.CryptoHasher("sha256").update(text).digest("hex");
}
