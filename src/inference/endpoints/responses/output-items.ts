import { isFields } from "../../../lib/json.ts";
import type { ChatEvent, FinishReason, ReasoningDetail } from "../../../providers/interface.ts";
import {
  CustomCallWriter,
  ForeignItemWriter,
  FunctionCallWriter,
  HostedToolWriter,
  type ItemPlace,
  type ItemStatus,
  type ItemWriter,
  MessageWriter,
  ReasoningWriter,
  type SendEvent,
} from "./item-writers.ts";

import type { NamespacedTool } from "./namespace-tools.ts";

type Fields = Readonly<Record<string, unknown>>;
type EventOf<Type extends ChatEvent["type"]> = Extract<ChatEvent, { readonly type: Type }>;

/** What of a request decides about the form of its output. */
export interface OutputOptions {
  /** Of the response, without its prefix: items are named after it. */
  readonly name: string;
  /** Whether reasoning is shown as its summary. */
  readonly showsSummary: boolean;
  /** Names of functions whose input is text in place of JSON. */
  readonly customTools: ReadonlySet<string>;
  /** Tools of namespaces, by the names of their functions. */
  readonly namespaced: ReadonlyMap<string, NamespacedTool>;
}

/**
 * Gathers an answer's events into items, and sends an event for each step. Messages and reasoning follow one
 * another, as in the provider's answer where that has items; calls of tools stay open to the end of the answer,
 * since their pieces may come interleaved.
 */
export class OutputItems {
  readonly #options: OutputOptions;
  readonly #send: SendEvent;
  /** In their order; those that have ended with their JSON. */
  readonly #items = new Map<ItemWriter, string | undefined>();
  readonly #calls = new Map<number, FunctionCallWriter | CustomCallWriter>();
  /** What continues the reasoning and came behind it. */
  readonly #lateDetails: ReasoningDetail[] = [];
  /** The provider's number of the item that came last. */
  #item: number | undefined;
  /** Runs of the gateway's own tools, by their numbers. */
  readonly #runs = new Map<number, HostedToolWriter>();
  /** Items of the provider's own that are on their way, by its numbers. */
  readonly #foreign = new Map<number, ForeignItemWriter>();
  #message: MessageWriter | undefined;
  #reasoning: ReasoningWriter | undefined;
  #finish: FinishReason | undefined;
  #limit: EventOf<"finish">["limit"];

  constructor(options: OutputOptions, send: SendEvent = () => undefined) {
    this.#options = options;
    this.#send = send;
  }

  /** How the answer has ended; undefined before. */
  get finish(): FinishReason | undefined {
    return this.#finish;
  }

  /** The gateway's own limit that ended it, if one did. */
  get limit(): EventOf<"finish">["limit"] {
    return this.#limit;
  }

  /** JSON of the items, with commas between them; what has not ended is incomplete. */
  get json(): string {
    return [...this.#items].map(([writer, json]) => json ?? writer.json("incomplete")).join(",");
  }

  /** Of the one answer that is asked for. Usage and errors are its taker's matter. */
  add(event: ChatEvent): void {
    if (event.type === "text") this.#addText(event);
    else if (event.type === "reasoning") this.#addReasoning(event);
    else if (event.type === "refusal") this.#addRefusal(event);
    else if (event.type === "tool_call") this.#addCall(event);
    else if (event.type === "tool_run") this.#addRun(event);
    else if (event.type === "foreign_item") this.#addForeign(event);
    else if (event.type === "finish") {
      this.#limit = event.limit;
      this.#endAll(event.reason);
    }
  }

  /** What comes of one item of the provider's is not joined to that of another. */
  #moveTo(item: number | undefined): void {
    if (item === this.#item) return;
    this.#endReasoning();
    this.#endMessage();
    this.#item = item;
  }

  #addForeign({ item, step, fields }: EventOf<"foreign_item">): void {
    if (step === "added") {
      this.#endReasoning();
      this.#endMessage();
      const writer = new ForeignItemWriter(this.#placeOf(prefixIn(fields)), fields);
      this.#items.set(writer, undefined);
      this.#foreign.set(item, writer);
      return;
    }
    const writer = this.#foreign.get(item);
    if (writer === undefined) return;
    if (step !== "done") {
      writer.pass(step.event, fields);
      return;
    }
    writer.take(fields);
    this.#foreign.delete(item);
    this.#end(writer, "completed");
  }

  #addText({ text, logprobs, annotations, item, phase }: EventOf<"text">): void {
    if (text === "" && annotations === undefined) return;
    this.#moveTo(item);
    const message = this.#openMessage(phase);
    if (text !== "") message.add("output_text", text, tokensOf(logprobs));
    if (annotations !== undefined) message.annotate(annotations.flatMap(annotationOf));
  }

  #addRefusal({ text, item }: EventOf<"refusal">): void {
    if (text === "") return;
    this.#moveTo(item);
    this.#openMessage().add("refusal", text);
  }

  #addReasoning({ text, details = [], item }: EventOf<"reasoning">): void {
    if (text === "" && details.length === 0) return;
    this.#moveTo(item);
    const hasMoved = item === undefined && (this.#message !== undefined || this.#calls.size > 0);
    if (text === "" && this.#reasoning === undefined && hasMoved) {
      this.#lateDetails.push(...details);
      return;
    }
    this.#endMessage();
    this.#openReasoning(details).add(text, details);
  }

  #addCall({ index, id, name, arguments: json = "" }: EventOf<"tool_call">): void {
    let call = this.#calls.get(index);
    if (call === undefined) {
      // A piece of a call that never began.
      if (id === undefined || name === undefined) return;
      this.#endReasoning();
      const isCustom = this.#options.customTools.has(name);
      const place = this.#placeOf(isCustom ? "ctc" : "fc");
      const called = this.#options.namespaced.get(name) ?? { name };
      call = new (isCustom ? CustomCallWriter : FunctionCallWriter)(place, {
        callId: id,
        ...called,
      });
      this.#items.set(call, undefined);
      this.#calls.set(index, call);
    }
    call.add(json);
  }

  #addRun({ run, state, item, isOver }: EventOf<"tool_run">): void {
    let writer = this.#runs.get(run);
    if (writer === undefined) {
      this.#moveTo(undefined);
      this.#endReasoning();
      this.#endMessage();
      const { type } = item;
      writer = new HostedToolWriter(this.#placeOf(prefixOf(type)), item);
      this.#items.set(writer, undefined);
      this.#runs.set(run, writer);
    }
    if (this.#items.get(writer) !== undefined) return;
    writer.note(state, item);
    if (isOver) this.#end(writer, "completed");
  }

  #endAll(reason: FinishReason): void {
    if (this.#finish !== undefined) return;
    const status = reason === "length" || reason === "content_filter" ? "incomplete" : "completed";
    this.#endReasoning();
    this.#endMessage(status);
    for (const call of this.#calls.values()) this.#end(call, status);
    for (const writer of this.#foreign.values()) this.#end(writer, "incomplete");
    if (this.#lateDetails.length > 0) {
      this.#openReasoning(this.#lateDetails).add("", this.#lateDetails);
      this.#endReasoning();
    }
    this.#finish = reason;
  }

  #openMessage(phase?: string): MessageWriter {
    this.#endReasoning();
    if (this.#message === undefined) {
      this.#message = new MessageWriter(this.#placeOf("msg"), phase);
      this.#items.set(this.#message, undefined);
    }
    return this.#message;
  }

  /** What a provider calls a summary is one, whether it was asked for or not. */
  #openReasoning(details: readonly ReasoningDetail[]): ReasoningWriter {
    if (this.#reasoning === undefined) {
      const isSummary = details.some(({ type }) => type === "reasoning.summary");
      const showsSummary = this.#options.showsSummary || isSummary;
      this.#reasoning = new ReasoningWriter(this.#placeOf("rs"), showsSummary);
      this.#items.set(this.#reasoning, undefined);
    }
    return this.#reasoning;
  }

  #endMessage(status: ItemStatus = "completed"): void {
    if (this.#message !== undefined) this.#end(this.#message, status);
    this.#message = undefined;
  }

  #endReasoning(): void {
    if (this.#reasoning !== undefined) this.#end(this.#reasoning, "completed");
    this.#reasoning = undefined;
  }

  #end(writer: ItemWriter, status: ItemStatus): void {
    writer.end(status);
    this.#items.set(writer, writer.json(status));
  }

  #placeOf(prefix: string): ItemPlace {
    const index = this.#items.size;
    return { id: outputItemId(prefix, this.#options.name, index), index, send: this.#send };
  }
}

/** What ids of the items of hosted tools begin with. */
const HOSTED_PREFIXES: Readonly<Record<string, string>> = {
  web_search_call: "ws",
  file_search_call: "fs",
  code_interpreter_call: "ci",
  mcp_call: "mcp",
  mcp_list_tools: "mcpl",
  mcp_approval_request: "mcpr",
};

function prefixOf(type: string): string {
  return Object.hasOwn(HOSTED_PREFIXES, type) ? HOSTED_PREFIXES[type]! : "item";
}

/** Of the provider's id, which tells what an item is. */
function prefixIn({ id }: Fields): string {
  const [, prefix] = /^([a-z]{1,16})_/.exec(typeof id === "string" ? id : "") ?? [];
  return prefix ?? "item";
}

/** Its middle is the name of its response: see `responseOfItem`. */
function outputItemId(prefix: string, name: string, index: number): string {
  return `${prefix}_${name}${String(index).padStart(2, "0")}`;
}

/** Of a chat answer, in OpenAI's form. */
function tokensOf(logprobs: unknown): readonly unknown[] {
  if (!isFields(logprobs) || !Array.isArray(logprobs.content)) return [];
  return logprobs.content.filter(isFields).map((token) => ({
    ...tokenOf(token),
    top_logprobs: Array.isArray(token.top_logprobs)
      ? token.top_logprobs.filter(isFields).map(tokenOf)
      : [],
  }));
}

function tokenOf({ token, logprob, bytes }: Fields): Fields {
  return { token, logprob, bytes: Array.isArray(bytes) ? bytes : [] };
}

/** A chat's annotation holds what it says in a member named after its type. */
function annotationOf(annotation: unknown): Fields[] {
  if (!isFields(annotation)) return [];
  if (annotation.type === "file_citation" && isFields(annotation.file_citation)) {
    return [{ type: "file_citation", ...annotation.file_citation }];
  }
  if (annotation.type !== "url_citation") return [annotation];
  const cited = isFields(annotation.url_citation) ? annotation.url_citation : annotation;
  const { url, title, start_index: start, end_index: end } = cited;
  if (typeof url !== "string") return [];
  return [
    {
      type: "url_citation",
      url,
      title: typeof title === "string" ? title : "",
      start_index: typeof start === "number" ? start : 0,
      end_index: typeof end === "number" ? end : 0,
    },
  ];
}
