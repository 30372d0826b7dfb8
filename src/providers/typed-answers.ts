import { ByteBuffer } from "../lib/byte-buffer.ts";
import type { Clock } from "../lib/clock.ts";
import { EventSplitter, textOfLatin1 } from "../lib/event-splitter.ts";
import { isFields } from "../lib/json.ts";
import type { Usage } from "../lib/usage.ts";
import { drainInBackground } from "./drain.ts";
import type {
  AnswerOptions,
  ChatEvent,
  FinishReason,
  PieceReader,
  RawStream,
  ReasoningDetail,
  ToolCall,
  TypedChoice,
} from "./interface.ts";
import type { StreamedAnswer } from "./streamed-answer.ts";

/**
 * Reads answers of OpenAI's API in typed form. The provider has already converted them to the gateway's form, so
 * differences between servers are settled.
 */

type Fields = Readonly<Record<string, unknown>>;

/** Returns the choice of a whole completion. */
export function choiceOf(completion: Fields): TypedChoice {
  const [choice] = completion.choices as readonly Fields[];
  const { message, finish_reason: finish, logprobs } = choice!;
  const {
    content,
    reasoning,
    refusal,
    tool_calls: calls,
    reasoning_details: details,
    annotations,
  } = message as Fields;
  return {
    text: textIn(content),
    reasoning: textIn(reasoning),
    refusal: textIn(refusal),
    ...(Array.isArray(details) && { reasoningDetails: details as ReasoningDetail[] }),
    ...(Array.isArray(calls) && { toolCalls: calls.map(callOf) }),
    ...(Array.isArray(annotations) && { annotations }),
    ...(isFields(logprobs) && { logprobs }),
    finish: finish as FinishReason,
    stopSequence: stopSequenceOf(choice!),
  };
}

function callOf({ id, function: called }: Fields): ToolCall {
  const { name, arguments: json } = called as Fields;
  return { id: String(id), name: String(name), arguments: String(json) };
}

/** Returns the stop sequence, which vLLM and SGLang report in addition to the finish reason. */
function stopSequenceOf({ stop_reason: reason, matched_stop: matched }: Fields) {
  return textIn(reason) ?? textIn(matched);
}

function textIn(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Largest frame in the gateway's form. */
const MAX_FRAME_BYTES = 32 * 1024 * 1024;

/** Reads a raw stream as typed events. */
export class RawStreamEvents implements PieceReader<readonly ChatEvent[]> {
  readonly #bytes: PieceReader;
  readonly #clock: Clock;
  readonly #frames = new ByteBuffer();
  /** Converts the provider's stream to frames in the gateway's form. */
  readonly #rewriter: StreamedAnswer<Uint8Array>;
  readonly #splitter = new EventSplitter(MAX_FRAME_BYTES);
  #events: ChatEvent[] = [];
  #reportedUsage: Usage | undefined;
  #isFailed = false;
  #isEnded = false;

  constructor(
    stream: Pick<RawStream, "reader" | "rewriter">,
    options: AnswerOptions,
    clock: Clock,
  ) {
    this.#bytes = stream.reader();
    this.#clock = clock;
    this.#rewriter = stream.rewriter(options, this.#frames);
  }

  get isOver(): boolean {
    return this.#isEnded;
  }

  take(): readonly ChatEvent[] | undefined {
    const bytes = this.#isEnded ? undefined : this.#bytes.take?.();
    return bytes === undefined ? undefined : this.#eventsOf(bytes);
  }

  async read(): Promise<{ done: boolean; value?: readonly ChatEvent[] }> {
    if (this.#isEnded) return { done: true };
    const { done, value } = await this.#bytes.read();
    if (!done && value !== undefined) return { done: false, value: this.#eventsOf(value) };
    this.#isEnded = true;
    const rest = this.#eventsOf(undefined);
    return rest.length === 0 ? { done: true } : { done: false, value: rest };
  }

  cancel(): Promise<void> {
    this.#isEnded = true;
    return this.#bytes.cancel();
  }

  #eventsOf(piece: Uint8Array | undefined): readonly ChatEvent[] {
    try {
      if (this.#isFailed) this.#pushAfterError(piece);
      else if (piece === undefined) this.#rewriter.end();
      else this.#rewriter.push(piece);
    } catch {
      // The rewriter stores the error in `failure`.
    }
    this.#readFrames();
    this.#emitUsage();
    this.#emitFailure();
    if (this.#rewriter.isDone && !this.#isEnded) {
      this.#isEnded = true;
      drainInBackground(this.#bytes, this.#clock);
    }
    const events = this.#events;
    this.#events = [];
    return events;
  }

  #pushAfterError(piece: Uint8Array | undefined): void {
    if (piece !== undefined && this.#rewriter.mayReportUsage) this.#rewriter.pushAfterError(piece);
  }

  #readFrames(): void {
    if (this.#frames.length > 0) this.#splitter.push(this.#frames.take(), this.#readFrame);
  }

  readonly #readFrame = (data: string): void => {
    const { choices } = JSON.parse(textOfLatin1(data)) as Fields;
    for (const choice of choices as readonly Fields[]) this.#readChoice(choice);
  };

  #readChoice(choice: Fields): void {
    const index = choice.index as number;
    const delta = choice.delta as Fields;
    const { refusal, tool_calls: calls } = delta;
    this.#readReasoning(index, delta);
    this.#readText(index, delta, choice.logprobs);
    if (textIn(refusal)) {
      this.#events.push({ type: "refusal", choice: index, text: refusal as string });
    }
    if (Array.isArray(calls)) for (const call of calls as Fields[]) this.#readCall(index, call);
    const { finish_reason: reason } = choice;
    if (typeof reason !== "string") return;
    const stopSequence = stopSequenceOf(choice);
    this.#events.push({
      type: "finish",
      choice: index,
      reason: reason as FinishReason,
      ...(stopSequence !== undefined && { stopSequence }),
    });
  }

  #readText(choice: number, { content, annotations }: Fields, logprobs: unknown): void {
    const text = textIn(content) ?? "";
    const isCited = Array.isArray(annotations) && annotations.length > 0;
    if (text === "" && !isCited) return;
    this.#events.push({
      type: "text",
      choice,
      text,
      ...(isCited && { annotations }),
      ...(isFields(logprobs) && { logprobs }),
    });
  }

  #readReasoning(choice: number, { reasoning, reasoning_details: details }: Fields): void {
    const text = textIn(reasoning) ?? "";
    const hasDetails = Array.isArray(details) && details.length > 0;
    if (text === "" && !hasDetails) return;
    this.#events.push({
      type: "reasoning",
      choice,
      text,
      ...(hasDetails && { details: details as ReasoningDetail[] }),
    });
  }

  #readCall(choice: number, { index, id, function: called }: Fields): void {
    const { name, arguments: json } = isFields(called) ? called : {};
    this.#events.push({
      type: "tool_call",
      choice,
      index: index as number,
      ...(typeof id === "string" && { id }),
      ...(typeof name === "string" && { name }),
      ...(typeof json === "string" && { arguments: json }),
    });
  }

  #emitUsage(): void {
    const { usage } = this.#rewriter;
    if (usage === undefined || usage === this.#reportedUsage) return;
    this.#reportedUsage = usage;
    this.#events.push({ type: "usage", usage });
  }

  #emitFailure(): void {
    const { failure, mayReportUsage } = this.#rewriter;
    if (failure === undefined) return;
    if (!this.#isFailed) this.#events.push({ type: "error", failure });
    this.#isFailed = true;
    if (!mayReportUsage) this.#isEnded = true;
  }
}

/** Returns the UTF-8 bytes of the answer that an event contains. */
export function answerBytes(event: ChatEvent): number {
  switch (event.type) {
    case "tool_call":
      return Buffer.byteLength((event.name ?? "") + (event.arguments ?? ""));
    case "reasoning":
      return Buffer.byteLength(event.text) + encryptedBytes(event.details);
    case "text":
    case "refusal":
      return Buffer.byteLength(event.text);
    case "foreign_item":
      return foreignBytes(event);
    default:
      return 0;
  }
}

/** Returns the bytes of the model's text in a foreign item. Only pieces count. */
function foreignBytes({
  step,
  fields,
}: Extract<ChatEvent, { readonly type: "foreign_item" }>): number {
  const isDelta = typeof step === "object" && step.event.endsWith(".delta");
  return isDelta && typeof fields.delta === "string" ? Buffer.byteLength(fields.delta) : 0;
}

/** Returns the bytes of encrypted reasoning. It is output, although only the provider can read it. */
function encryptedBytes(details: readonly ReasoningDetail[] = []): number {
  let bytes = 0;
  for (const detail of details) {
    if (detail.type === "reasoning.encrypted") bytes += Buffer.byteLength(detail.data);
  }
  return bytes;
}
