import { EventSplitter, textOfLatin1 } from "../../../lib/event-splitter.ts";
import { isFields, jsonValue } from "../../../lib/json.ts";
import type { AnswerGatherer, CacheFormat, HitFacts } from "../../call/endpoint.ts";
import {
  decidingFields,
  keptJson,
  longIdentity,
  MAX_KEPT_JSON_BYTES,
} from "../chat-completions/kept-answer.ts";
import type { AcceptedMessages } from "./accepted.ts";
import { messageId } from "./message-renderer.ts";
import { usageOf } from "./whole-message.ts";

type Fields = Readonly<Record<string, unknown>>;

/** How messages end that would come again: a refusal might not, and a pause is no end. */
const KEPT_ENDS: ReadonlySet<unknown> = new Set([
  "end_turn",
  "max_tokens",
  "stop_sequence",
  "tool_use",
]);

/** Fields that decide nothing about an answer, but for its form; the models are named apart. */
const UNDECIDING: ReadonlySet<string> = new Set([
  ...["model", "models", "stream", "metadata", "trace", "session_id", "route_explain"],
]);

/** Messages in the response cache: as JSON of a whole one. */
export const keptMessages: CacheFormat<AcceptedMessages> = {
  identity({ fields, source, asked, version }) {
    const fieldsOf = longIdentity(fields) ?? decidingFields(source.body!, UNDECIDING);
    return { fields: fieldsOf, betas: asked.betas, version };
  },

  ofWhole(body) {
    const message = keptJson(body);
    return message && keptOf(message);
  },

  gather: () => new MessageGatherer(),

  whole(kept, _request, facts) {
    return JSON.stringify(messageAgain(kept, facts));
  },

  stream(kept, _request, facts) {
    const { content, stop_reason, stop_sequence, usage, ...rest } = messageAgain(kept, facts);
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

function keptOf(message: Fields): string | undefined {
  const isWhole = KEPT_ENDS.has(message.stop_reason) && Array.isArray(message.content);
  const json = isWhole ? JSON.stringify(message) : "";
  return isWhole && json.length <= MAX_KEPT_JSON_BYTES ? json : undefined;
}

/** Under the id of the request that gets it. */
function messageAgain(kept: string, { requestId, model, usage }: HitFacts): Message {
  const message = JSON.parse(kept) as Message;
  const told = isFields(message.usage) ? message.usage : usageOf(usage, 0);
  return { ...message, id: messageId(requestId), model, usage: { ...told, cost: 0 } };
}

/** What of a block comes in deltas: its member, what stands for it before, and the delta that brings it. */
const GROWING: readonly (readonly [member: string, empty: unknown, delta: string])[] = [
  ["text", "", "text_delta"],
  ["thinking", "", "thinking_delta"],
  ["signature", "", "signature_delta"],
];

/** The events of one block. */
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

/** Joins the events of a stream to the message that they are. */
class MessageGatherer implements AnswerGatherer {
  readonly #splitter = new EventSplitter(MAX_KEPT_JSON_BYTES);
  #message: Record<string, unknown> | undefined;
  readonly #content: Block[] = [];
  /** JSON of the inputs of tools, by block. */
  readonly #inputs = new Map<number, string>();
  #bytes = 0;
  #isDone = false;
  #isBroken = false;

  push(bytes: Uint8Array): void {
    if (this.#isBroken) return;
    try {
      this.#splitter.push(bytes, (data) => this.#take(data));
    } catch {
      // It is too long, or has events that are not known here: it cannot be kept.
      this.#isBroken = true;
    }
  }

  end(): string | undefined {
    if (!this.#isDone || this.#isBroken || this.#message === undefined) return undefined;
    return keptOf({ ...this.#message, content: this.#content });
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
    else throw new RangeError("an event is not known");
  }

  #count(data: string): void {
    this.#bytes += data.length;
    // Of one that comes in small pieces most bytes are those of the events.
    if (this.#bytes > MAX_KEPT_JSON_BYTES * 16) throw new RangeError("a message is too long");
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
    } else throw new RangeError("a delta is not known");
  }

  #endBlock(index: number): void {
    const json = this.#inputs.get(index);
    if (json === undefined || json === "") return;
    const input = jsonValue(json);
    if (!isFields(input)) throw new RangeError("an input is no object");
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
