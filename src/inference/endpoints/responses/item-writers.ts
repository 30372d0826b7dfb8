import type { ReasoningDetail } from "../../../providers/interface.ts";
import { addDetail, partOf } from "../../../providers/reasoning-details.ts";
import { customInput } from "../chat-completions/custom-tools.ts";
import { encryptedContent } from "./reasoning-content.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Receives an event: its type, and its members in JSON, without braces. */
export type SendEvent = (type: string, members: string) => void;

/** Begins a part of a summary that is not its first, where parts are read as one text. */
const BLANK_LINE = "\n\n";

/** How an item ends. */
export type ItemStatus = "completed" | "incomplete";

/** An item of the output that is being written. Its texts are JSON. */
export interface ItemWriter {
  /** As it stands. */
  json(status: ItemStatus | "in_progress"): string;
  /** Sends what ends it. */
  end(status: ItemStatus): void;
}

/** Where an item stands in the output, and what receives its events. */
export interface ItemPlace {
  readonly id: string;
  readonly index: number;
  readonly send: SendEvent;
}

const itemMembers = ({ id, index }: ItemPlace): string =>
  `"item_id":"${id}","output_index":${index}`;

function sendItem({ index, send }: ItemPlace, type: "added" | "done", json: string): void {
  send(`response.output_item.${type}`, `"output_index":${index},"item":${json}`);
}

/** A part of a message: a text, or a refusal. */
interface MessagePart {
  readonly type: "output_text" | "refusal";
  readonly texts: string[];
  readonly annotations: unknown[];
  readonly logprobs: unknown[];
}

/** What the assistant says. Its last part may grow. */
export class MessageWriter implements ItemWriter {
  readonly #place: ItemPlace;
  readonly #phase: string;
  readonly #parts: MessagePart[] = [];

  /** @param phase whether it is the answer, or said on the way to it, where the model says so */
  constructor(place: ItemPlace, phase?: string) {
    this.#place = place;
    this.#phase = phase === undefined ? "" : `,"phase":${JSON.stringify(phase)}`;
    sendItem(place, "added", this.json("in_progress"));
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
    const { id } = this.#place;
    const parts = this.#parts.map(partJson).join(",");
    return `{"id":"${id}","type":"message","status":"${status}","role":"assistant","content":[${parts}]${this.#phase}}`;
  }

  end(status: ItemStatus): void {
    this.#endPart();
    sendItem(this.#place, "done", this.json(status));
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
    const place = `${itemMembers(this.#place)},"content_index":${this.#parts.length - 1}`;
    this.#place.send(`response.${type}`, `${place},${members}`);
  }
}

function partJson({ type, texts, annotations, logprobs }: MessagePart): string {
  const text = JSON.stringify(texts.join(""));
  if (type === "refusal") return `{"type":"refusal","refusal":${text}}`;
  const rest = `"annotations":${JSON.stringify(annotations)},"logprobs":${JSON.stringify(logprobs)}`;
  return `{"type":"output_text","text":${text},${rest}}`;
}

/**
 * What the model thinks. Where a summary is asked for, its text is shown as one, the form that clients display;
 * otherwise it is the item's content.
 */
export class ReasoningWriter implements ItemWriter {
  readonly #place: ItemPlace;
  readonly #isSummary: boolean;
  readonly #details: ReasoningDetail[] = [];
  /** Pieces of the parts; the last part grows. */
  readonly #parts: string[][] = [];
  /** The provider's number of that part. */
  #part = 0;

  constructor(place: ItemPlace, isSummary: boolean) {
    this.#place = place;
    this.#isSummary = isSummary;
    sendItem(place, "added", this.json());
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
    const { id } = this.#place;
    const parts = this.#parts.map((pieces) => this.#partJson(pieces.join(""))).join(",");
    const summary = this.#isSummary ? parts : "";
    const content = this.#isSummary || parts === "" ? "" : `,"content":[${parts}]`;
    const encrypted = encryptedContent(this.#details);
    const kept = encrypted === undefined ? "" : `,"encrypted_content":"${encrypted}"`;
    return `{"id":"${id}","type":"reasoning","summary":[${summary}]${content}${kept}}`;
  }

  end(): void {
    if (this.#parts.length > 0) this.#endPart();
    sendItem(this.#place, "done", this.json());
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
    this.#place.send(`response.${type}`, `${itemMembers(this.#place)},${index},${members}`);
  }
}

/** An item of the provider's own, which stays as it is but for its id. */
export class ForeignItemWriter implements ItemWriter {
  readonly #place: ItemPlace;
  #fields: Readonly<Record<string, unknown>>;

  constructor(place: ItemPlace, fields: Readonly<Record<string, unknown>>) {
    this.#place = place;
    this.#fields = fields;
    sendItem(place, "added", this.#json(fields));
  }

  /** Sends an event of the provider's. */
  pass(type: string, fields: Readonly<Record<string, unknown>>): void {
    const members = JSON.stringify(fields).slice(1, -1);
    const place = itemMembers(this.#place);
    this.#place.send(type, members === "" ? place : `${place},${members}`);
  }

  /** The item is whole. */
  take(fields: Readonly<Record<string, unknown>>): void {
    this.#fields = fields;
  }

  json(status: ItemStatus | "in_progress"): string {
    const { status: own } = this.#fields;
    const isCut = status === "incomplete" && own !== undefined;
    return this.#json(isCut ? { ...this.#fields, status } : this.#fields);
  }

  end(status: ItemStatus): void {
    sendItem(this.#place, "done", this.json(status));
  }

  #json(fields: Readonly<Record<string, unknown>>): string {
    return JSON.stringify({ ...fields, id: this.#place.id });
  }
}

interface Call {
  /** What its output is to name. */
  readonly callId: string;
  readonly name: string;
  /** The group that the tool is one of. */
  readonly namespace?: string;
}

/** A call of a function, whose arguments are JSON. */
export class FunctionCallWriter implements ItemWriter {
  readonly #place: ItemPlace;
  readonly #call: Call;
  readonly #pieces: string[] = [];

  constructor(place: ItemPlace, call: Call) {
    this.#place = place;
    this.#call = call;
    sendItem(place, "added", this.json("in_progress"));
  }

  add(piece: string): void {
    if (piece === "") return;
    this.#pieces.push(piece);
    this.#send("delta", `"delta":${JSON.stringify(piece)}`);
  }

  json(status: ItemStatus | "in_progress"): string {
    const json = JSON.stringify(this.#pieces.join(""));
    return `{${callHead(this.#place, "function_call", this.#call)},"arguments":${json},"status":"${status}"}`;
  }

  end(status: ItemStatus): void {
    // Nothing at all is no JSON.
    if (this.#pieces.length === 0) this.add("{}");
    const name = JSON.stringify(this.#call.name);
    this.#send("done", `"name":${name},"arguments":${JSON.stringify(this.#pieces.join(""))}`);
    sendItem(this.#place, "done", this.json(status));
  }

  #send(what: "delta" | "done", members: string): void {
    const type = `response.function_call_arguments.${what}`;
    this.#place.send(type, `${itemMembers(this.#place)},${members}`);
  }
}

/** A call of a custom tool, which models make as a function of one text: its input is known at its end. */
export class CustomCallWriter implements ItemWriter {
  readonly #place: ItemPlace;
  readonly #call: Call;
  readonly #pieces: string[] = [];

  constructor(place: ItemPlace, call: Call) {
    this.#place = place;
    this.#call = call;
    sendItem(place, "added", this.#json("", "in_progress"));
  }

  add(piece: string): void {
    this.#pieces.push(piece);
  }

  json(status: ItemStatus | "in_progress"): string {
    return this.#json(customInput(this.#pieces.join("")), status);
  }

  end(status: ItemStatus): void {
    const input = JSON.stringify(customInput(this.#pieces.join("")));
    const members = itemMembers(this.#place);
    this.#place.send("response.custom_tool_call_input.delta", `${members},"delta":${input}`);
    this.#place.send("response.custom_tool_call_input.done", `${members},"input":${input}`);
    sendItem(this.#place, "done", this.json(status));
  }

  #json(input: string, status: string): string {
    return `{${callHead(this.#place, "custom_tool_call", this.#call)},"input":${JSON.stringify(input)},"status":"${status}"}`;
  }
}

/** Of items that show what a tool was given as it is written: their events, and the member that holds it. */
const WRITTEN_INPUTS: Readonly<Record<string, readonly [event: string, member: string]>> = {
  code_interpreter_call: ["code_interpreter_call_code", "code"],
  mcp_call: ["mcp_call_arguments", "arguments"],
};
/** Types without a status. */
const WITHOUT_STATUS: ReadonlySet<string> = new Set(["mcp_list_tools", "mcp_approval_request"]);
/** Types without states that events tell. */
const WITHOUT_STATES: ReadonlySet<string> = new Set(["mcp_approval_request"]);

/** A run of a tool of the gateway's own. */
export class HostedToolWriter implements ItemWriter {
  readonly #place: ItemPlace;
  #item: Fields & { readonly type: string };
  #state: string | undefined;

  constructor(place: ItemPlace, item: Fields & { readonly type: string }) {
    this.#place = place;
    this.#item = item;
    sendItem(place, "added", this.json("in_progress"));
  }

  /** Sends the state that the run is in, with what is known of it. */
  note(state: string, item: Fields & { readonly type: string }): void {
    const { type } = item;
    this.#item = item;
    if (state === this.#state) return;
    const isFirst = this.#state === undefined;
    this.#state = state;
    // Of most types only the item says that it failed.
    const isTold = state !== "failed" || type.startsWith("mcp_");
    if (isTold && !WITHOUT_STATES.has(type)) this.#send(`${type}.${state}`);
    if (isFirst) this.#sendInput();
  }

  json(status: ItemStatus | "in_progress"): string {
    const { type, ...members } = this.#item;
    const hasEnded = this.#state === "completed" || this.#state === "failed";
    // What the answer ended before has failed: not every type can be incomplete.
    const last = hasEnded ? this.#state : status === "in_progress" ? status : "failed";
    const told = WITHOUT_STATUS.has(type) ? {} : { status: last };
    return JSON.stringify({ id: this.#place.id, type, ...told, ...members });
  }

  end(status: ItemStatus): void {
    sendItem(this.#place, "done", this.json(status));
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
    this.#place.send(`response.${type}`, itemMembers(this.#place) + members);
  }
}

function callHead({ id }: ItemPlace, type: string, { callId, name, namespace }: Call): string {
  const told = namespace === undefined ? "" : `,"namespace":${JSON.stringify(namespace)}`;
  return `"id":"${id}","type":"${type}","call_id":${JSON.stringify(callId)},"name":${JSON.stringify(name)}${told}`;
}
