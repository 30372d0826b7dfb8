import { isFields } from "../../../lib/json.ts";
import type { ChatEvent, FinishReason, ReasoningDetail } from "../../../providers/interface.ts";
import {
  CustomCallWriter,
  ForeignItemWriter,
  FunctionCallWriter,
  HostedToolWriter,
  type ItemStatus,
  type ItemTarget,
  type ItemWriter,
  MessageWriter,
  ReasoningWriter,
  type SendEvent,
} from "./item-writers.ts";

import type { NamespacedTool } from "./namespace-tools.ts";

type Fields = Readonly<Record<string, unknown>>;
type EventOf<Type extends ChatEvent["type"]> = Extract<ChatEvent, { readonly type: Type }>;

/** The parts of a request that determine the form of its output. */
export interface OutputOptions {
  /** The name of the response, which is its id without the prefix. Item ids contain it. */
  readonly name: string;
  /** True if reasoning is shown as a summary. */
  readonly showsSummary: boolean;
  /** Names of functions whose input is text instead of JSON. */
  readonly customTools: ReadonlySet<string>;
  /** Tools of namespaces, by the names of their functions. */
  readonly namespaced: ReadonlyMap<string, NamespacedTool>;
}

/**
 * Gathers an answer's events into items, and sends an event for each change. Messages and reasoning follow
 * each other, as in the provider's answer if that has items. Tool calls stay open to the end of the answer,
 * since their pieces can be interleaved.
 */
export class OutputItems {
  readonly #options: OutputOptions;
  readonly #send: SendEvent;
  /** Items in order. A finished item has its JSON. */
  readonly #items = new Map<ItemWriter, string | undefined>();
  readonly #calls = new Map<number, FunctionCallWriter | CustomCallWriter>();
  /** Details that belong to the reasoning but arrived after it. */
  readonly #lateDetails: ReasoningDetail[] = [];
  /** The provider's number of the last item. */
  #item: number | undefined;
  /** Runs of tools that the gateway runs, by number. */
  readonly #runs = new Map<number, HostedToolWriter>();
  /** Unfinished items of the provider, by its numbers. */
  readonly #foreign = new Map<number, ForeignItemWriter>();
  #message: MessageWriter | undefined;
  #reasoning: ReasoningWriter | undefined;
  #finish: FinishReason | undefined;
  #limit: EventOf<"finish">["limit"];

  constructor(options: OutputOptions, send: SendEvent = () => undefined) {
    this.#options = options;
    this.#send = send;
  }

  /** The finish reason of the answer. Undefined before its end. */
  get finish(): FinishReason | undefined {
    return this.#finish;
  }

  /** The limit of the gateway that ended the answer, if one did. */
  get limit(): EventOf<"finish">["limit"] {
    return this.#limit;
  }

  /** JSON of the items, separated by commas. Unfinished items are incomplete. */
  get json(): string {
    return [...this.#items].map(([writer, json]) => json ?? writer.json("incomplete")).join(",");
  }

  /** Adds an event of the answer's only choice. The caller handles usage and errors. */
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

  /**
   * Ends the open message and reasoning if the provider's item changes, because pieces of different items are
   * not joined.
   */
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
      const writer = new ForeignItemWriter(this.#targetOf(prefixIn(fields)), fields);
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
    const isLate = item === undefined && (this.#message !== undefined || this.#calls.size > 0);
    if (text === "" && this.#reasoning === undefined && isLate) {
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
      const target = this.#targetOf(isCustom ? "ctc" : "fc");
      const called = this.#options.namespaced.get(name) ?? { name };
      call = new (isCustom ? CustomCallWriter : FunctionCallWriter)(target, {
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
      writer = new HostedToolWriter(this.#targetOf(prefixOf(type)), item);
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
      this.#message = new MessageWriter(this.#targetOf("msg"), phase);
      this.#items.set(this.#message, undefined);
    }
    return this.#message;
  }

  /** Returns the open reasoning. A provider's summary is shown as a summary, even if the request wants none. */
  #openReasoning(details: readonly ReasoningDetail[]): ReasoningWriter {
    if (this.#reasoning === undefined) {
      const isSummary = details.some(({ type }) => type === "reasoning.summary");
      const showsSummary = this.#options.showsSummary || isSummary;
      this.#reasoning = new ReasoningWriter(this.#targetOf("rs"), showsSummary);
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

  #targetOf(prefix: string): ItemTarget {
    const index = this.#items.size;
    return { id: outputItemId(prefix, this.#options.name, index), index, send: this.#send };
  }
}

/** Prefixes of the item ids of tools that the gateway runs. */
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

/** Returns the prefix of the provider's id, which names the kind of item. */
function prefixIn({ id }: Fields): string {
  const [, prefix] = /^([a-z]{1,16})_/.exec(typeof id === "string" ? id : "") ?? [];
  return prefix ?? "item";
}

/** Returns the id of an item, which contains the name of its response: see `responseOfItem`. */
function outputItemId(prefix: string, name: string, index: number): string {
  return `${prefix}_${name}${String(index).padStart(2, "0")}`;
}

/** Returns the log probabilities of a chat answer in OpenAI's form for responses. */
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

/** Returns an annotation. A chat's annotation has its content in a member named after its type. */
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
