import { isFields, jsonValue } from "../../lib/json.ts";
import { JSON_TOOL } from "../anthropic/tools.ts";
import type { ChatEvent } from "../interface.ts";
import { brokenAnswer } from "../transport/call-failures.ts";
import type { FailureContext } from "../transport/status-failure.ts";
import type { StreamDecoder } from "../typed-stream-reader.ts";
import { finishReason, isOfCaller, redactedDetail, textDetail } from "./converse-answer.ts";
import { type EventMessage, EventStreamDecoder } from "./event-stream-decoder.ts";
import { failureOfMessage } from "./failure-mapping.ts";
import { reportedUsage } from "./reported-usage.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Converse sends one choice per request. */
const choice = 0;

/** A block of the answer that has begun and not yet ended. */
type OpenBlock =
  | { readonly type: "call"; readonly index: number }
  /** The tool call whose input is the answer. */
  | { readonly type: "answer" }
  /** Redacted reasoning. Its pieces are decoded from base64, because base64 texts cannot be concatenated. */
  | { readonly type: "redacted"; readonly pieces: Buffer[] };

/**
 * Reads the stream of ConverseStream
 * (https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html) as typed
 * events. Skips events, blocks and deltas of unknown kinds. Passes the input of tools on unchanged, even if
 * it is not JSON.
 */
export class ConverseDecoder implements StreamDecoder {
  readonly #answersByTool: boolean;
  readonly #failureContext: () => FailureContext;
  readonly #messages = new EventStreamDecoder();
  readonly #open = new Map<unknown, OpenBlock>();
  #calls = 0;
  #events: ChatEvent[] = [];
  #hasStopped = false;
  #hasMetadata = false;

  constructor(answersByTool: boolean, failureContext: () => FailureContext) {
    this.#answersByTool = answersByTool;
    this.#failureContext = failureContext;
  }

  /** True after both the stop event and the usage, which arrive in either order. */
  get isOver(): boolean {
    return this.#hasStopped && this.#hasMetadata;
  }

  push(bytes: Uint8Array, events: ChatEvent[]): void {
    this.#events = events;
    this.#messages.push(bytes, this.#takeMessage);
  }

  end(): void {
    if (!this.isOver) this.#messages.end();
  }

  readonly #takeMessage = (message: EventMessage): void => {
    const failure = failureOfMessage(message, this.#failureContext());
    // Bedrock sends nothing after an exception.
    if (failure !== undefined) throw failure;
    const type = message.headers.get(":event-type");
    if (type === undefined || !Object.hasOwn(this.#handlers, type)) return;
    this.#handlers[type]!(parsed(message.payload));
  };

  readonly #handlers: Readonly<Record<string, (event: Fields) => void>> = {
    contentBlockStart: ({ contentBlockIndex: index, start }) => {
      if (isFields(start) && isFields(start.toolUse)) this.#beginCall(index, start.toolUse);
    },
    contentBlockDelta: ({ contentBlockIndex: index, delta }) => {
      if (isFields(delta)) this.#takeDelta(index, delta);
    },
    contentBlockStop: ({ contentBlockIndex: index }) => this.#endBlock(index),
    messageStop: ({ stopReason }) => {
      for (const index of [...this.#open.keys()]) this.#endBlock(index);
      this.#hasStopped = true;
      const reason = finishReason(stopReason, this.#calls);
      this.#events.push({ type: "finish", choice, reason });
    },
    metadata: ({ usage: raw }) => {
      this.#hasMetadata = true;
      const usage = reportedUsage(raw);
      if (usage !== undefined) this.#events.push({ type: "usage", usage });
    },
  };

  #beginCall(blockIndex: unknown, { toolUseId: id, name, type }: Fields): void {
    if (!isOfCaller(type)) return;
    if (typeof id !== "string" || typeof name !== "string") {
      throw brokenAnswer("a call without id or name");
    }
    if (this.#answersByTool && name === JSON_TOOL) {
      this.#open.set(blockIndex, { type: "answer" });
      return;
    }
    const index = this.#calls++;
    this.#open.set(blockIndex, { type: "call", index });
    this.#events.push({ type: "tool_call", choice, index, id, name });
  }

  #takeDelta(index: unknown, { text, toolUse, reasoningContent }: Fields): void {
    if (typeof text === "string") this.#addText(text);
    else if (isFields(toolUse)) this.#addInput(index, toolUse.input);
    else if (isFields(reasoningContent)) this.#addReasoning(index, reasoningContent);
  }

  #addText(text: string): void {
    if (text !== "") this.#events.push({ type: "text", choice, text });
  }

  /** Adds input to a call of the caller's tools or to an answer by tool. Skips the input of other blocks. */
  #addInput(blockIndex: unknown, json: unknown): void {
    const block = this.#open.get(blockIndex);
    if (typeof json !== "string" || json === "") return;
    if (block?.type === "answer") this.#addText(json);
    if (block?.type !== "call") return;
    this.#events.push({ type: "tool_call", choice, index: block.index, arguments: json });
  }

  #addReasoning(blockIndex: unknown, { text, signature, redactedContent }: Fields): void {
    const index = validIndex(blockIndex);
    if (typeof text === "string" && text !== "") {
      const details = [textDetail(index, { text })];
      this.#events.push({ type: "reasoning", choice, text, details });
    }
    if (typeof signature === "string" && signature !== "") {
      const details = [textDetail(index, { signature })];
      this.#events.push({ type: "reasoning", choice, text: "", details });
    }
    if (typeof redactedContent !== "string") return;
    const open = this.#open.get(blockIndex);
    const pieces = open?.type === "redacted" ? open.pieces : [];
    pieces.push(Buffer.from(redactedContent, "base64"));
    this.#open.set(blockIndex, { type: "redacted", pieces });
  }

  #endBlock(blockIndex: unknown): void {
    const block = this.#open.get(blockIndex);
    this.#open.delete(blockIndex);
    if (block?.type !== "redacted") return;
    const data = Buffer.concat(block.pieces).toString("base64");
    const details = [redactedDetail(validIndex(blockIndex), data)];
    this.#events.push({ type: "reasoning", choice, text: "", details });
  }
}

/** Returns the index of a block in the answer, or 0 if Bedrock sent no valid index. */
function validIndex(index: unknown): number {
  return Number.isSafeInteger(index) ? (index as number) : 0;
}

function parsed(payload: Uint8Array): Fields {
  const event = jsonValue(new TextDecoder().decode(payload));
  if (isFields(event)) return event;
  throw brokenAnswer("an event that is not a JSON object");
}
