import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import type { Usage } from "../../../lib/usage.ts";
import type {
  AnswerOptions,
  ChatEvent,
  FinishReason,
  ReasoningDetail,
} from "../../../providers/interface.ts";
import { MessageStream } from "../../../providers/messages-provider.ts";
import { JsonEnd } from "./json-end.ts";
import { redactedData, signatureOf } from "./reasoning-mark.ts";
import { endOf, usageOf } from "./whole-message.ts";

type Fields = Readonly<Record<string, unknown>>;
type CallEvent = Extract<ChatEvent, { readonly type: "tool_call" }>;
type ReasoningEvent = Extract<ChatEvent, { readonly type: "reasoning" }>;

/** The current block of text or reasoning. */
type OpenBlock =
  | { readonly type: "text" }
  | { readonly type: "thinking"; detail: Mutable<ReasoningDetail> | undefined };

type Mutable<Detail> = { -readonly [Name in keyof Detail]: Detail[Name] };

/** A tool call that can receive more pieces. */
interface OpenCall {
  readonly id: string;
  readonly name: string;
  /** The arguments that were received and not written yet. */
  unwritten: string;
  readonly end: JsonEnd;
}

export interface MessageOptions extends AnswerOptions {
  /** Estimated usage of the prompt, for `message_start`, before the provider reports it. */
  readonly estimatedInput: Usage;
}

export const PING = 'event: ping\ndata: {"type":"ping"}\n\n';

/**
 * Renders typed events as events of the Messages API. Its blocks cannot overlap, so one tool call is written
 * at a time. Pieces of other calls wait until it ends.
 */
export class MessageRenderer extends MessageStream<readonly ChatEvent[]> {
  readonly #options: MessageOptions;
  #hasStarted = false;
  #open: OpenBlock | undefined;
  /** Calls that are not completely written, by the provider's index, in order of arrival. */
  readonly #calls = new Map<number, OpenCall>();
  #isWritingCall = false;
  #blocks = 0;
  #finish: FinishReason | undefined;
  #stopSequence: string | undefined;

  constructor(options: MessageOptions, output: ByteBuffer) {
    super(output, options.nowSeconds);
    this.#options = options;
  }

  override closing(usage: Usage, costUsd: number): string {
    const delta = endOf(this.#finish ?? "stop", this.#stopSequence);
    const last = { type: "message_delta", delta, usage: usageOf(usage, costUsd) };
    return frame(last) + frame({ type: "message_stop" });
  }

  protected override take(events: readonly ChatEvent[]): void {
    this.noteEvents(events.length);
    for (const event of events) this.#takeEvent(event);
  }

  protected override takeEnd(): void {
    // Each event is complete, so no state remains at the end.
  }

  #takeEvent(event: ChatEvent): void {
    if (event.type === "usage") this.noteUsage(event.usage);
    else if (this.failure !== undefined) return;
    else if (event.type === "error") this.noteReportedError(event.failure);
    else if (event.type === "withheld") this.noteWithheld(event.bytes);
    else if (event.choice !== 0 || this.#finish !== undefined) return;
    // No image model serves messages, and messages never have tools that the gateway or a provider runs.
    else if (event.type === "image" || event.type === "tool_run") return;
    else if (event.type === "foreign_item") return;
    else {
      this.startedChoices = 1;
      if (event.type === "finish") this.#end(event.reason, event.stopSequence);
      else if (event.type === "tool_call") this.#addCall(event);
      else if (event.type === "reasoning") this.#addReasoning(event);
      else this.#addText(event.text);
    }
  }

  #addText(text: string): void {
    if (text === "") return;
    this.meter(Buffer.byteLength(text));
    if (this.#open?.type !== "text") {
      this.#closeAll();
      this.#beginBlock({ type: "text", text: "" });
      this.#open = { type: "text" };
    }
    this.#addDelta({ type: "text_delta", text });
  }

  #addReasoning({ text, details = [] }: ReasoningEvent): void {
    this.meter(Buffer.byteLength(text));
    const hasText = details.some(({ type }) => type !== "reasoning.encrypted");
    if (text !== "" && !hasText) this.#addThinking(text, undefined);
    for (const detail of details) {
      if (detail.type === "reasoning.encrypted") this.#addRedacted(detail);
      else this.#addThinking(textOf(detail), detail);
    }
  }

  #addRedacted(detail: Extract<ReasoningDetail, { readonly type: "reasoning.encrypted" }>): void {
    this.meter(Buffer.byteLength(detail.data));
    this.#closeAll();
    this.#beginBlock({ type: "redacted_thinking", data: redactedData(detail) });
    this.#endBlock();
  }

  /** Adds thinking to a block. Pieces of one detail form one block. */
  #addThinking(text: string, detail: ReasoningDetail | undefined): void {
    const open = this.#open;
    if (open?.type === "thinking" && isSameDetail(open.detail, detail)) {
      open.detail = open.detail && Object.assign(open.detail, detail);
    } else {
      this.#closeAll();
      this.#beginBlock({ type: "thinking", thinking: "", signature: "" });
      this.#open = { type: "thinking", detail: detail && { ...detail } };
    }
    if (text !== "") this.#addDelta({ type: "thinking_delta", thinking: text });
  }

  #addCall({ index, id, name, arguments: json = "" }: CallEvent): void {
    this.meter(Buffer.byteLength((name ?? "") + json));
    let call = this.#calls.get(index);
    if (call === undefined) {
      // A piece of a call that has already ended.
      if (id === undefined || name === undefined) return;
      this.#closeBlock();
      this.#endWholeCall();
      call = { id, name, unwritten: "", end: new JsonEnd() };
      this.#calls.set(index, call);
      this.noteBegun();
    }
    call.unwritten += json;
    call.end.take(json);
    this.#writeCall();
  }

  /** Writes the received arguments of the first call. */
  #writeCall(): void {
    for (const call of this.#calls.values()) {
      if (!this.#isWritingCall) {
        const { id, name } = call;
        this.#beginBlock({ type: "tool_use", id, name, input: {} });
        this.#isWritingCall = true;
      }
      if (call.unwritten !== "") {
        this.#addDelta({ type: "input_json_delta", partial_json: call.unwritten });
        call.unwritten = "";
      }
      return;
    }
  }

  /** Ends calls whose arguments are complete, because another call begins. */
  #endWholeCall(): void {
    for (const [index, call] of this.#calls) {
      if (!call.end.isReached) return;
      this.#writeCall();
      this.#endCall(index);
    }
  }

  #endCall(index: number): void {
    this.#endBlock();
    this.#calls.delete(index);
    this.#isWritingCall = false;
  }

  #closeAll(): void {
    this.#closeBlock();
    for (const index of [...this.#calls.keys()]) {
      this.#writeCall();
      this.#endCall(index);
    }
  }

  #closeBlock(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    if (open.type === "thinking") {
      const signature = signatureOf(open.detail);
      if (signature !== "") this.#addDelta({ type: "signature_delta", signature });
    }
    this.#endBlock();
  }

  #end(reason: FinishReason, stopSequence: string | undefined): void {
    this.#start();
    this.#closeAll();
    this.noteBegun();
    this.#finish = reason;
    this.#stopSequence = stopSequence;
    this.finishedChoices = 1;
  }

  #beginBlock(block: Fields): void {
    this.#start();
    this.noteBegun();
    this.#send({ type: "content_block_start", index: this.#blocks, content_block: block });
  }

  #addDelta(delta: Fields): void {
    this.#send({ type: "content_block_delta", index: this.#blocks, delta });
  }

  #endBlock(): void {
    this.#send({ type: "content_block_stop", index: this.#blocks });
    this.#blocks++;
  }

  #start(): void {
    if (this.#hasStarted) return;
    this.#hasStarted = true;
    const { id, model, estimatedInput } = this.#options;
    const { cost: _, ...usage } = usageOf(this.reportedUsage ?? estimatedInput, 0);
    const message = {
      id,
      type: "message",
      role: "assistant",
      model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage,
    };
    this.#send({ type: "message_start", message });
    this.output.add(PING);
  }

  #send(event: Fields & { readonly type: string }): void {
    this.output.add(frame(event));
  }
}

/** Returns a frame of a stream, with its bytes as Latin-1 characters. */
export function frame(event: Fields & { readonly type: string }): string {
  return `event: ${event.type}\ndata: ${latin1OfText(JSON.stringify(event))}\n\n`;
}

function textOf(detail: ReasoningDetail): string {
  if (detail.type === "reasoning.summary") return detail.summary;
  return detail.type === "reasoning.text" ? (detail.text ?? "") : "";
}

/** Returns true if two details belong to the same block. A signature ends its detail if details have no index. */
function isSameDetail(
  open: ReasoningDetail | undefined,
  next: ReasoningDetail | undefined,
): boolean {
  if (open === undefined || next === undefined) return open === next;
  if (open.type !== next.type || open.index !== next.index || open.id !== next.id) return false;
  const isSigned = open.type === "reasoning.text" && open.signature !== undefined;
  return !isSigned || next.index !== undefined;
}

/** Returns the id of the message for a request. */
export function messageId(requestId: string): string {
  return `msg_${requestId.slice(4)}`;
}
