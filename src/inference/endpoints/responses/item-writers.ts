import type { ReasoningDetail } from "../../../providers/interface.ts";
import { addDetail, partOf } from "../../../providers/reasoning-details.ts";
import { customInput } from "../chat-completions/custom-tools.ts";
import { encryptedContent } from "./reasoning-content.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Receives an event: its type, and its members in JSON without braces. */
export type SendEvent = (type: string, members: string) => void;

/** Begins each summary part after the first, for clients that read the parts as one text. */
const BLANK_LINE = "\n\n";

/** The status of a finished item. */
export type ItemStatus = "completed" | "incomplete";

/** Writes one output item. Texts are JSON. */
export interface ItemWriter {
  /** Returns the item in its current state. */
  json(status: ItemStatus | "in_progress"): string;
  /** Sends the events that end the item. */
  end(status: ItemStatus): void;
}

/** The position of an item in the output, and the receiver of its events. */
export interface ItemTarget {
  readonly id: string;
  readonly index: number;
  readonly send: SendEvent;
}

const itemMembers = ({ id, index }: ItemTarget): string =>
  `"item_id":"${id}","output_index":${index}`;

function sendItem({ index, send }: ItemTarget, type: "added" | "done", json: string): void {
  send(`response.output_item.${type}`, `"output_index":${index},"item":${json}`);
}

/** A part of a message: a text or a refusal. */
interface MessagePart {
  readonly type: "output_text" | "refusal";
  readonly texts: string[];
  readonly annotations: unknown[];
  readonly logprobs: unknown[];
}

/** Writes a message of the assistant. Only the last part can grow. */
export class MessageWriter implements ItemWriter {
  readonly #target: ItemTarget;
  readonly #phase: string;
  readonly #parts: MessagePart[] = [];

  /** @param phase the model's statement of whether this is the answer or an interim message, if it makes one */
  constructor(target: ItemTarget, phase?: string) {
    this.#target = target;
    this.#phase = phase === undefined ? "" : `,"phase":${JSON.stringify(phase)}`;
    sendItem(target, "added", this.json("in_progress"));
  }

  add(type: MessagePart["type"], text: string, logprobs: readonly unknown[] = []): void {
    const part = this.#partOf(type);
    part.texts.push(text);
    part.logprobs.push(...logprobs);
    const ofText = type === "output_text" ? `,"logprobs":${JSON.stringify(logprobs)}` : "";
    this.#send(`${type}.delta`, `"delta":${JSON.stringify(text)}${ofText}`);
  }

  annotate(annotations: readonly unknown[]): void {
    const part = this.#partOf("output_text");
    for (const annotation of annotations) {
      const index = part.annotations.push(annotation) - 1;
      const members = `"annotation_index":${index},"annotation":${JSON.stringify(annotation)}`;
      this.#send("output_text.annotation.added", members);
    }
  }

  json(status: ItemStatus | "in_progress"): string {
    const { id } = this.#target;
    const parts = this.#parts.map(partJson).join(",");
    return `{"id":"${id}","type":"message","status":"${status}","role":"assistant","content":[${parts}]${this.#phase}}`;
  }

  end(status: ItemStatus): void {
    this.#endPart();
    sendItem(this.#target, "done", this.json(status));
  }

  #partOf(type: MessagePart["type"]): MessagePart {
    const last = this.#parts.at(-1);
    if (last?.type === type) return last;
    if (last !== undefined) this.#endPart();
    const part: MessagePart = { type, texts: [], annotations: [], logprobs: [] };
    this.#parts.push(part);
    this.#send("content_part.added", `"part":${partJson(part)}`);
    return part;
  }

  #endPart(): void {
    const part = this.#parts.at(-1);
    if (part === undefined) return;
    const text = JSON.stringify(part.texts.join(""));
    if (part.type === "refusal") this.#send("refusal.done", `"refusal":${text}`);
    else {
      this.#send("output_text.done", `"text":${text},"logprobs":${JSON.stringify(part.logprobs)}`);
    }
    this.#send("content_part.done", `"part":${partJson(part)}`);
  }

  #send(type: string, members: string): void {
    const itemPart = `${itemMembers(this.#target)},"content_index":${this.#parts.length - 1}`;
    this.#target.send(`response.${type}`, `${itemPart},${members}`);
  }
}

function partJson({ type, texts, annotations, logprobs }: MessagePart): string {
  const text = JSON.stringify(texts.join(""));
  if (type === "refusal") return `{"type":"refusal","refusal":${text}}`;
  const rest = `"annotations":${JSON.stringify(annotations)},"logprobs":${JSON.stringify(logprobs)}`;
  return `{"type":"output_text","text":${text},${rest}}`;
}

/**
 * Writes the reasoning of a model. If the request wants a summary, the text is shown as a summary, which
 * clients display. Otherwise it is the content of the item.
 */
export class ReasoningWriter implements ItemWriter {
  readonly #target: ItemTarget;
  readonly #isSummary: boolean;
  readonly #details: ReasoningDetail[] = [];
  /** Pieces of each part. Only the last part can grow. */
  readonly #parts: string[][] = [];
  /** The provider's number of the last part. */
  #part = 0;

  constructor(target: ItemTarget, isSummary: boolean) {
    this.#target = target;
    this.#isSummary = isSummary;
    sendItem(target, "added", this.json());
  }

  add(text: string, details: readonly ReasoningDetail[]): void {
    for (const detail of details) addDetail(this.#details, detail);
    const [first] = details;
    const part = first === undefined || !this.#isSummary ? this.#part : partOf(first);
    if (text === "") return;
    const isNext = this.#parts.length > 0 && part > this.#part;
    if (isNext) this.#endPart();
    if (isNext || this.#parts.length === 0) {
      this.#parts.push([]);
      this.#part = part;
      this.#sendPart("added", "");
    }
    const piece = isNext && text.startsWith(BLANK_LINE) ? text.slice(BLANK_LINE.length) : text;
    if (piece === "") return;
    this.#parts.at(-1)!.push(piece);
    const type = this.#isSummary ? "reasoning_summary_text.delta" : "reasoning.delta";
    this.#send(type, `"delta":${JSON.stringify(piece)}`);
  }

  json(): string {
    const { id } = this.#target;
    const parts = this.#parts.map((pieces) => this.#partJson(pieces.join(""))).join(",");
    const summary = this.#isSummary ? parts : "";
    const content = this.#isSummary || parts === "" ? "" : `,"content":[${parts}]`;
    const encrypted = encryptedContent(this.#details);
    const encryptedMember = encrypted === undefined ? "" : `,"encrypted_content":"${encrypted}"`;
    return `{"id":"${id}","type":"reasoning","summary":[${summary}]${content}${encryptedMember}}`;
  }

  end(): void {
    if (this.#parts.length > 0) this.#endPart();
    sendItem(this.#target, "done", this.json());
  }

  #endPart(): void {
    const text = this.#parts.at(-1)!.join("");
    const type = this.#isSummary ? "reasoning_summary_text.done" : "reasoning.done";
    this.#send(type, `"text":${JSON.stringify(text)}`);
    this.#sendPart("done", text);
  }

  #partJson(text: string): string {
    const type = this.#isSummary ? "summary_text" : "reasoning_text";
    return `{"type":"${type}","text":${JSON.stringify(text)}}`;
  }

  #sendPart(what: "added" | "done", text: string): void {
    const name = this.#isSummary ? "reasoning_summary_part" : "content_part";
    this.#send(`${name}.${what}`, `"part":${this.#partJson(text)}`);
  }

  #send(type: string, members: string): void {
    const name = this.#isSummary ? "summary_index" : "content_index";
    const index = `"${name}":${this.#parts.length - 1}`;
    this.#target.send(`response.${type}`, `${itemMembers(this.#target)},${index},${members}`);
  }
}

/** Writes an item of the provider, which is unchanged except for its id. */
export class ForeignItemWriter implements ItemWriter {
  readonly #target: ItemTarget;
  #fields: Readonly<Record<string, unknown>>;

  constructor(target: ItemTarget, fields: Readonly<Record<string, unknown>>) {
    this.#target = target;
    this.#fields = fields;
    sendItem(target, "added", this.#json(fields));
  }

  /** Sends an event of the provider. */
  pass(type: string, fields: Readonly<Record<string, unknown>>): void {
    const members = JSON.stringify(fields).slice(1, -1);
    const itemPart = itemMembers(this.#target);
    this.#target.send(type, members === "" ? itemPart : `${itemPart},${members}`);
  }

  /** Replaces the item with its complete form. */
  take(fields: Readonly<Record<string, unknown>>): void {
    this.#fields = fields;
  }

  json(status: ItemStatus | "in_progress"): string {
    const { status: itemStatus } = this.#fields;
    const isCut = status === "incomplete" && itemStatus !== undefined;
    return this.#json(isCut ? { ...this.#fields, status } : this.#fields);
  }

  end(status: ItemStatus): void {
    sendItem(this.#target, "done", this.json(status));
  }

  #json(fields: Readonly<Record<string, unknown>>): string {
    return JSON.stringify({ ...fields, id: this.#target.id });
  }
}

interface Call {
  /** The id that the output of the call refers to. */
  readonly callId: string;
  readonly name: string;
  /** The namespace of the tool. */
  readonly namespace?: string;
}

/** Writes a call of a function, whose arguments are JSON. */
export class FunctionCallWriter implements ItemWriter {
  readonly #target: ItemTarget;
  readonly #call: Call;
  readonly #pieces: string[] = [];

  constructor(target: ItemTarget, call: Call) {
    this.#target = target;
    this.#call = call;
    sendItem(target, "added", this.json("in_progress"));
  }

  add(piece: string): void {
    if (piece === "") return;
    this.#pieces.push(piece);
    this.#send("delta", `"delta":${JSON.stringify(piece)}`);
  }

  json(status: ItemStatus | "in_progress"): string {
    const json = JSON.stringify(this.#pieces.join(""));
    return `{${callHead(this.#target, "function_call", this.#call)},"arguments":${json},"status":"${status}"}`;
  }

  end(status: ItemStatus): void {
    // An empty text is not JSON.
    if (this.#pieces.length === 0) this.add("{}");
    const name = JSON.stringify(this.#call.name);
    this.#send("done", `"name":${name},"arguments":${JSON.stringify(this.#pieces.join(""))}`);
    sendItem(this.#target, "done", this.json(status));
  }

  #send(what: "delta" | "done", members: string): void {
    const type = `response.function_call_arguments.${what}`;
    this.#target.send(type, `${itemMembers(this.#target)},${members}`);
  }
}

/**
 * Writes a call of a custom tool. Models call it as a function with one string parameter, so the input is
 * complete only at the end.
 */
export class CustomCallWriter implements ItemWriter {
  readonly #target: ItemTarget;
  readonly #call: Call;
  readonly #pieces: string[] = [];

  constructor(target: ItemTarget, call: Call) {
    this.#target = target;
    this.#call = call;
    sendItem(target, "added", this.#json("", "in_progress"));
  }

  add(piece: string): void {
    this.#pieces.push(piece);
  }

  json(status: ItemStatus | "in_progress"): string {
    return this.#json(customInput(this.#pieces.join("")), status);
  }

  end(status: ItemStatus): void {
    const input = JSON.stringify(customInput(this.#pieces.join("")));
    const members = itemMembers(this.#target);
    this.#target.send("response.custom_tool_call_input.delta", `${members},"delta":${input}`);
    this.#target.send("response.custom_tool_call_input.done", `${members},"input":${input}`);
    sendItem(this.#target, "done", this.json(status));
  }

  #json(input: string, status: string): string {
    return `{${callHead(this.#target, "custom_tool_call", this.#call)},"input":${JSON.stringify(input)},"status":"${status}"}`;
  }
}

/** Item types that show a tool's input while it is written: their event, and the member with the input. */
const WRITTEN_INPUTS: Readonly<Record<string, readonly [event: string, member: string]>> = {
  code_interpreter_call: ["code_interpreter_call_code", "code"],
  mcp_call: ["mcp_call_arguments", "arguments"],
};
/** Item types without a status. */
const WITHOUT_STATUS: ReadonlySet<string> = new Set(["mcp_list_tools", "mcp_approval_request"]);
/** Item types without state events. */
const WITHOUT_STATES: ReadonlySet<string> = new Set(["mcp_approval_request"]);

/** Writes a run of a tool that the gateway runs. */
export class HostedToolWriter implements ItemWriter {
  readonly #target: ItemTarget;
  #item: Fields & { readonly type: string };
  #state: string | undefined;

  constructor(target: ItemTarget, item: Fields & { readonly type: string }) {
    this.#target = target;
    this.#item = item;
    sendItem(target, "added", this.json("in_progress"));
  }

  /** Sends the state of the run with the current item. */
  note(state: string, item: Fields & { readonly type: string }): void {
    const { type } = item;
    this.#item = item;
    if (state === this.#state) return;
    const isFirst = this.#state === undefined;
    this.#state = state;
    // Most types show a failure only in the item.
    const isSent = state !== "failed" || type.startsWith("mcp_");
    if (isSent && !WITHOUT_STATES.has(type)) this.#send(`${type}.${state}`);
    if (isFirst) this.#sendInput();
  }

  json(status: ItemStatus | "in_progress"): string {
    const { type, ...members } = this.#item;
    const hasEnded = this.#state === "completed" || this.#state === "failed";
    // A run that the answer ended early has failed, because not every type can be incomplete.
    const last = hasEnded ? this.#state : status === "in_progress" ? status : "failed";
    const statusMember = WITHOUT_STATUS.has(type) ? {} : { status: last };
    return JSON.stringify({ id: this.#target.id, type, ...statusMember, ...members });
  }

  end(status: ItemStatus): void {
    sendItem(this.#target, "done", this.json(status));
  }

  #sendInput(): void {
    const [event, member] = WRITTEN_INPUTS[this.#item.type] ?? [];
    const input = member === undefined ? undefined : this.#item[member];
    if (typeof input !== "string" || event === undefined) return;
    const json = JSON.stringify(input);
    if (input !== "") this.#send(`${event}.delta`, `,"delta":${json}`);
    this.#send(`${event}.done`, `,"${member}":${json}`);
  }

  #send(type: string, members = ""): void {
    this.#target.send(`response.${type}`, itemMembers(this.#target) + members);
  }
}

function callHead({ id }: ItemTarget, type: string, { callId, name, namespace }: Call): string {
  const namespaceMember =
    namespace === undefined ? "" : `,"namespace":${JSON.stringify(namespace)}`;
  return `"id":"${id}","type":"${type}","call_id":${JSON.stringify(callId)},"name":${JSON.stringify(name)}${namespaceMember}`;
}
