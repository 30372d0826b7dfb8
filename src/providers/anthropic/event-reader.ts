import type { Clock } from "../../lib/clock.ts";
import { EventSplitter, textOfLatin1 } from "../../lib/event-splitter.ts";
import { isFields } from "../../lib/json.ts";
import {
  type ChatEvent,
  type PieceReader,
  ProviderFailure,
  type ReasoningDetail,
} from "../interface.ts";
import { redactedDetail, thinkingDetail } from "./reasoning-details.ts";
import { ReportedUsage } from "./reported-usage.ts";
import { finishReason, refusalText } from "./stop-reason.ts";
import { JSON_TOOL } from "./tools.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The largest single event, in bytes: beyond that a provider is broken. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;
/** How long the rest of a stream may take behind its last event before its connection is dropped. */
const DRAIN_MS = 1_000;
/** There is one answer to each call. */
const choice = 0;

/** A block of the answer that is under way. */
type OpenBlock =
  | { readonly type: "call"; readonly index: number; hasInput: boolean; readonly input: unknown }
  /** The call whose input is the answer. */
  | { readonly type: "answer"; hasInput: boolean; readonly input: unknown };

export interface EventReaderOptions {
  readonly answersByTool: boolean;
  readonly clock: Clock;
  failureOf(event: unknown): ProviderFailure;
}

/**
 * Reads the events of a stream as typed ones: https://platform.claude.com/docs/en/build-with-claude/streaming.
 * Events, blocks and deltas of types that are not known are passed over, as that page demands. The stream is
 * over at `message_stop`; one that ends before lacks its finish, unless that has come. The input of tools is
 * handed on as it comes, JSON or not.
 */
export class EventReader implements PieceReader<readonly ChatEvent[]> {
  readonly #bytes: PieceReader;
  readonly #options: EventReaderOptions;
  readonly #splitter = new EventSplitter(MAX_EVENT_BYTES);
  readonly #usage = new ReportedUsage();
  /** By the index of the block. */
  readonly #open = new Map<unknown, OpenBlock>();
  #calls = 0;
  #events: ChatEvent[] = [];
  #isOver = false;
  #isDrained = false;

  constructor(bytes: PieceReader, options: EventReaderOptions) {
    this.#bytes = bytes;
    this.#options = options;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  take(): readonly ChatEvent[] | undefined {
    if (this.#isOver) return undefined;
    const bytes = this.#bytes.take?.();
    return bytes === undefined ? undefined : this.#eventsOf(bytes);
  }

  async read(): Promise<{ done: boolean; value?: readonly ChatEvent[] }> {
    if (this.#isOver) return { done: true };
    const { done, value } = await this.#bytes.read();
    if (!done && value !== undefined) return { done: false, value: this.#eventsOf(value) };
    this.#isOver = true;
    this.#isDrained = true;
    try {
      this.#splitter.end(this.#takeEvent);
    } catch (error) {
      this.#break(error);
    }
    const rest = this.#takeEvents();
    return rest.length === 0 ? { done: true } : { done: false, value: rest };
  }

  cancel(): Promise<void> {
    this.#isOver = true;
    this.#isDrained = true;
    return this.#bytes.cancel();
  }

  #eventsOf(bytes: Uint8Array): readonly ChatEvent[] {
    try {
      this.#splitter.push(bytes, this.#takeEvent);
      if (this.#isOver) this.#drain();
    } catch (error) {
      this.#break(error);
    }
    return this.#takeEvents();
  }

  /** What came before is still an answer, so the failure is the last event. */
  #break(error: unknown): void {
    const failure =
      error instanceof ProviderFailure
        ? error
        : new ProviderFailure("unavailable", (error as Error).message, { cause: error });
    this.#events.push({ type: "error", failure });
    this.cancel().catch(() => undefined);
  }

  #takeEvents(): readonly ChatEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  readonly #takeEvent = (data: string): void => {
    // Behind its end a stream says nothing; proxies add OpenAI's mark.
    if (this.#isOver && !this.#isDrained) return;
    if (data === "" || data === "[DONE]") return;
    const event = parsed(data);
    switch (event.type) {
      case "message_start":
        if (isFields(event.message)) this.#takeUsage(event.message.usage);
        break;
      case "content_block_start":
        if (isFields(event.content_block)) this.#beginBlock(event.index, event.content_block);
        break;
      case "content_block_delta":
        if (isFields(event.delta)) this.#takeDelta(event.index, event.delta);
        break;
      case "content_block_stop":
        this.#endBlock(event.index);
        break;
      case "message_delta":
        this.#endMessage(event);
        break;
      case "message_stop":
        this.#isOver = true;
        break;
      case "error":
        this.#takeUsage(event.usage);
        this.#events.push({ type: "error", failure: this.#options.failureOf(event) });
        break;
    }
  };

  #beginBlock(index: unknown, block: Fields): void {
    const { type, text, thinking, data, input } = block;
    if (type === "text") this.#addText(text);
    else if (type === "thinking") this.#addThinking(index, thinking);
    else if (type === "redacted_thinking" && typeof data === "string") {
      this.#addDetail("", redactedDetail(place(index), data));
    } else if (type !== "tool_use") return;
    else if (this.#options.answersByTool && block.name === JSON_TOOL) {
      this.#open.set(index, { type: "answer", hasInput: false, input });
    } else this.#beginCall(index, block);
  }

  #beginCall(at: unknown, { id, name, input }: Fields): void {
    if (typeof id !== "string" || typeof name !== "string") {
      throw new ProviderFailure("unavailable", "the provider sent a call without id or name");
    }
    const index = this.#calls++;
    this.#open.set(at, { type: "call", index, hasInput: false, input });
    this.#events.push({ type: "tool_call", choice, index, id, name });
  }

  #takeDelta(index: unknown, delta: Fields): void {
    switch (delta.type) {
      case "text_delta":
        this.#addText(delta.text);
        break;
      case "thinking_delta":
        this.#addThinking(index, delta.thinking);
        break;
      case "signature_delta":
        if (typeof delta.signature === "string" && delta.signature !== "") {
          this.#addDetail("", thinkingDetail(place(index), { signature: delta.signature }));
        }
        break;
      case "input_json_delta":
        this.#addInput(index, delta.partial_json);
        break;
    }
  }

  /** Of blocks that are not calls of the caller's tools it is passed over. */
  #addInput(index: unknown, json: unknown): void {
    const block = this.#open.get(index);
    if (block === undefined || typeof json !== "string" || json === "") return;
    block.hasInput = true;
    if (block.type === "answer") this.#addText(json);
    else this.#events.push({ type: "tool_call", choice, index: block.index, arguments: json });
  }

  /** Some servers send the whole input with the beginning of its block. */
  #endBlock(index: unknown): void {
    const block = this.#open.get(index);
    if (block === undefined) return;
    const isStated = isFields(block.input) && Object.keys(block.input).length > 0;
    const rest = isStated || block.type === "answer" ? JSON.stringify(block.input ?? {}) : "";
    if (!block.hasInput) this.#addInput(index, rest);
    this.#open.delete(index);
  }

  #addText(text: unknown): void {
    if (typeof text === "string" && text !== "") this.#events.push({ type: "text", choice, text });
  }

  #addThinking(index: unknown, text: unknown): void {
    if (typeof text === "string" && text !== "") {
      this.#addDetail(text, thinkingDetail(place(index), { text }));
    }
  }

  #addDetail(text: string, detail: ReasoningDetail): void {
    this.#events.push({ type: "reasoning", choice, text, details: [detail] });
  }

  #endMessage({ delta, usage }: Fields): void {
    const { stop_reason: stopReason, stop_details: details } = isFields(delta) ? delta : {};
    const refusal = refusalText(stopReason, details);
    if (refusal !== undefined) this.#events.push({ type: "refusal", choice, text: refusal });
    this.#takeUsage(usage);
    if (typeof stopReason !== "string") return;
    const answersByTool = this.#options.answersByTool && this.#calls === 0;
    this.#events.push({ type: "finish", choice, reason: finishReason(stopReason, answersByTool) });
  }

  #takeUsage(raw: unknown): void {
    if (raw === undefined || raw === null) return;
    this.#usage.take(raw);
    const { usage } = this.#usage;
    if (usage !== undefined) this.#events.push({ type: "usage", usage });
  }

  /** Reads to the end in the background, so that the connection can be used again. */
  #drain(): void {
    if (this.#isDrained) return;
    this.#isDrained = true;
    const stopTimer = this.#options.clock.after(DRAIN_MS, () => {
      this.#bytes.cancel().catch(() => undefined);
    });
    void (async () => {
      try {
        while (!(await this.#bytes.read()).done);
      } catch {
        // A connection that breaks behind the last event has said everything.
      } finally {
        stopTimer();
      }
    })();
  }
}

/** The place of a block in the answer. */
function place(index: unknown): number {
  return Number.isSafeInteger(index) ? (index as number) : 0;
}

function parsed(data: string): Fields {
  let event: unknown;
  try {
    event = JSON.parse(textOfLatin1(data));
  } catch {
    // The error of the parser quotes what it stumbled over.
  }
  if (isFields(event)) return event;
  throw new ProviderFailure("unavailable", "the provider's stream holds what is no event");
}
