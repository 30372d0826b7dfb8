import { EventSplitter, textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields, jsonValue } from "../../../lib/json.ts";
import type { AnswerGatherer, CacheFormat, HitFacts } from "../../call/endpoint.ts";
import {
  decidingFields,
  longIdentity,
  MAX_CACHED_JSON_BYTES,
  parseCacheableJson,
} from "../chat-completions/cache-format.ts";
import type { AcceptedMessages } from "./accepted.ts";
import { messageId } from "./message-renderer.ts";
import { usageOf } from "./whole-message.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Stop reasons of messages that can be cached. A refusal could be different the next time, and a pause is not
 * an end.
 */
const CACHEABLE_STOP_REASONS: ReadonlySet<unknown> = new Set([
  "end_turn",
  "max_tokens",
  "stop_sequence",
  "tool_use",
]);

/**
 * Fields that change only the form of an answer, and not its content. The models are part of the identity
 * separately.
 */
const FORM_FIELDS: ReadonlySet<string> = new Set([
  ...["model", "models", "stream", "metadata", "trace", "session_id", "route_explain"],
]);

/** Messages in the response cache. Each is stored as the JSON of a complete message. */
export const messagesCacheFormat: CacheFormat<AcceptedMessages> = {
  identity({ fields, source, needs, version }) {
    const fieldsOf = longIdentity(fields) ?? decidingFields(source.body!, FORM_FIELDS);
    return { fields: fieldsOf, betas: needs.betas, version };
  },

  ofWhole(body) {
    const message = parseCacheableJson(body);
    return message && cacheableJson(message);
  },

  gather: () => new MessageGatherer(),

  whole(cached, _request, facts) {
    return JSON.stringify(messageFromCache(cached, facts));
  },

  stream(cached, _request, facts) {
    const { content, stop_reason, stop_sequence, usage, ...rest } = messageFromCache(cached, facts);
    const { context_management, ...head } = rest;
    const { cost: _, ...begun } = usage;
    const start = { ...head, content: [], stop_reason: null, stop_sequence: null, usage: begun };
    const delta = { stop_reason, stop_sequence };
    const end = { type: "message_delta", delta, usage, context_management };
    const events: Fields[] = [{ type: "message_start", message: start }];
    for (const [index, block] of content.entries()) events.push(...eventsOf(block, index));
    return [...events, end, { type: "message_stop" }].map(frame).join("");
  },
};

interface Message extends Fields {
  readonly content: readonly Fields[];
  readonly usage: Fields;
}

function cacheableJson(message: Fields): string | undefined {
  const isWhole = CACHEABLE_STOP_REASONS.has(message.stop_reason) && Array.isArray(message.content);
  const json = isWhole ? JSON.stringify(message) : "";
  return isWhole && json.length <= MAX_CACHED_JSON_BYTES ? json : undefined;
}

/** Returns a cached message with the id of the current request. */
function messageFromCache(cached: string, { requestId, model, usage }: HitFacts): Message {
  const message = JSON.parse(cached) as Message;
  const cachedUsage = isFields(message.usage) ? message.usage : usageOf(usage, 0);
  return { ...message, id: messageId(requestId), model, usage: { ...cachedUsage, cost: 0 } };
}

/** Members of a block that are sent in deltas: the member, its initial value, and the type of the delta. */
const GROWING: readonly (readonly [member: string, empty: unknown, delta: string])[] = [
  ["text", "", "text_delta"],
  ["thinking", "", "thinking_delta"],
  ["signature", "", "signature_delta"],
];

/** Returns the events of one block. */
function eventsOf(block: Fields, index: number): Fields[] {
  const begun: Record<string, unknown> = { ...block };
  const deltas: Fields[] = [];
  for (const [member, empty, type] of GROWING) {
    const value = block[member];
    if (typeof value !== "string") continue;
    begun[member] = empty;
    if (value !== "") deltas.push({ type, [member]: value });
  }
  if (isFields(block.input)) {
    begun.input = {};
    deltas.push({ type: "input_json_delta", partial_json: JSON.stringify(block.input) });
  }
  if (Array.isArray(block.citations) && typeof block.text === "string") {
    begun.citations = [];
    deltas.push(...block.citations.map((citation) => ({ type: "citations_delta", citation })));
  }
  return [
    { type: "content_block_start", index, content_block: begun },
    ...deltas.map((delta) => ({ type: "content_block_delta", index, delta })),
    { type: "content_block_stop", index },
  ];
}

function frame(event: Fields): string {
  return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

type Block = Record<string, unknown>;

/** Joins the events of a stream to a message. */
class MessageGatherer implements AnswerGatherer {
  readonly #splitter = new EventSplitter(MAX_CACHED_JSON_BYTES);
  #message: Record<string, unknown> | undefined;
  readonly #content: Block[] = [];
  /** The JSON of tool inputs by block. */
  readonly #inputs = new Map<number, string>();
  #bytes = 0;
  #isDone = false;
  #isBroken = false;

  push(bytes: Uint8Array): void {
    if (this.#isBroken) return;
    try {
      this.#splitter.push(bytes, (data) => this.#take(data));
    } catch {
      // The stream is too long, or has an unknown event. It is not cached.
      this.#isBroken = true;
    }
  }

  end(): string | undefined {
    if (!this.#isDone || this.#isBroken || this.#message === undefined) return undefined;
    return cacheableJson({ ...this.#message, content: this.#content });
  }

  #take(data: string): void {
    const event = JSON.parse(textOfLatin1(data)) as Fields;
    const { type, index } = event;
    if (type === "ping") return;
    if (type === "message_start") this.#message = { ...(event.message as Fields) };
    else if (type === "content_block_start") {
      this.#count(data);
      this.#content[index as number] = { ...(event.content_block as Fields) };
    } else if (type === "content_block_delta") {
      this.#count(data);
      this.#addDelta(index as number, event.delta as Fields);
    } else if (type === "content_block_stop") this.#endBlock(index as number);
    else if (type === "message_delta") this.#endMessage(event);
    else if (type === "message_stop") this.#isDone = true;
    else throw new RangeError("an event is unknown");
  }

  #count(data: string): void {
    this.#bytes += data.length;
    // Events in small pieces consist mostly of overhead, so the limit is a multiple.
    if (this.#bytes > MAX_CACHED_JSON_BYTES * 16) throw new RangeError("a message is too long");
  }

  #addDelta(index: number, delta: Fields): void {
    const block = this.#content[index]!;
    const growing = GROWING.find(([, , type]) => type === delta.type);
    if (growing !== undefined) {
      const [member] = growing;
      block[member] = `${block[member] ?? ""}${delta[member]}`;
    } else if (delta.type === "input_json_delta") {
      this.#inputs.set(index, `${this.#inputs.get(index) ?? ""}${delta.partial_json}`);
    } else if (delta.type === "citations_delta") {
      block.citations = [...((block.citations ?? []) as unknown[]), delta.citation];
    } else throw new RangeError("a delta is unknown");
  }

  #endBlock(index: number): void {
    const json = this.#inputs.get(index);
    if (json === undefined || json === "") return;
    const input = jsonValue(json);
    if (!isFields(input)) throw new RangeError("an input is not an object");
    this.#content[index]!.input = input;
  }

  #endMessage({ type: _, delta, usage, ...rest }: Fields): void {
    const message = this.#message!;
    Object.assign(message, rest);
    Object.assign(message, delta, {
      usage: { ...(message.usage as Fields), ...(usage as Fields) },
    });
  }
}
