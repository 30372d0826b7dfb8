import { tokensOfBytes } from "../../lib/token-estimate.ts";
import type { Usage } from "../../lib/usage.ts";
import {
  type ChatEvent,
  ProviderFailure,
  type ReasoningDetail,
  type ToolCall,
} from "../../providers/interface.ts";
import { addDetail } from "../../providers/reasoning-details.ts";
import { answerBytes } from "../../providers/typed-answers.ts";
import type { AddedMessage } from "./added-messages.ts";

type CallPiece = Extract<ChatEvent, { readonly type: "tool_call" }>;
type Finish = Extract<ChatEvent, { readonly type: "finish" }>;

/** Maximum UTF-8 bytes of the calls of the gateway's tools in one step. */
const MAX_CALL_BYTES = 1_048_576;
/** Bytes counted for each call in addition to its name and arguments. */
const BYTES_OF_CALL = 64;

interface StepOptions {
  /** Returns true if the gateway runs the function of that name. */
  isGatewayTool(name: string): boolean;
  /** Number of calls that the client was shown before this step. */
  readonly shownBefore: number;
  /** Maximum UTF-8 bytes of the answer. A longer answer fails. */
  readonly maxBytes: number;
}

/**
 * A model's answer in one step. The client receives its pieces as they arrive, except calls of the gateway's
 * tools and the finish. The answer is stored for the next step.
 */
export class StepAnswer {
  readonly #options: StepOptions;
  readonly #texts: string[] = [];
  /** Index in `#texts` at which the last message begins, and the provider's number of that message. */
  #messageFrom = 0;
  #item: number | undefined;
  readonly #thoughts: string[] = [];
  readonly #details: ReasoningDetail[] = [];
  /** Calls of the gateway's tools by index. Their arguments grow. */
  readonly #calls = new Map<number, { -readonly [Member in keyof ToolCall]: ToolCall[Member] }>();
  readonly #shown = new Map<number, number>();
  #bytes = 0;
  /** The bytes that the reported usage includes. */
  #reportedBytes = 0;
  #callBytes = 0;
  #finish: Finish | undefined;
  #usage: Usage | undefined;
  #failure: ProviderFailure | undefined;

  constructor(options: StepOptions) {
    this.#options = options;
  }

  /** The end of the model's answer. Undefined until then. */
  get finish(): Finish | undefined {
    return this.#finish;
  }

  get failure(): ProviderFailure | undefined {
    return this.#failure;
  }

  get text(): string {
    return this.#texts.join("");
  }

  /** The last message, and the provider's number of it. */
  get lastMessage(): { readonly text: string; readonly item: number | undefined } {
    return { text: this.#texts.slice(this.#messageFrom).join(""), item: this.#item };
  }

  /** Calls of the gateway's tools, in the order in which they began. */
  get calls(): readonly ToolCall[] {
    return [...this.#calls.values()];
  }

  /** Number of calls that the client has to run. */
  get shownCalls(): number {
    return this.#shown.size;
  }

  /** The reported usage, plus an estimate for the part of the answer that arrived after the report. */
  get reportedUsage(): Usage | undefined {
    const usage = this.#usage;
    const newTokens = tokensOfBytes(this.#bytes - this.#reportedBytes);
    if (usage === undefined || newTokens === 0) return usage;
    return { ...usage, completionTokens: usage.completionTokens + newTokens, estimated: true };
  }

  /** Estimated tokens of the answer so far. */
  get countedTokens(): number {
    return tokensOfBytes(this.#bytes);
  }

  /** True if the estimated usage has changed because of calls that the client does not see. */
  get hidesTokens(): boolean {
    return this.#callBytes > 0 && this.#usage === undefined;
  }

  /** Adds events, and returns those that the client receives. The caller handles usage. */
  take(events: readonly ChatEvent[]): ChatEvent[] {
    const shown: ChatEvent[] = [];
    for (const event of events) {
      if (event.type === "usage") {
        this.#usage = event.usage;
        this.#reportedBytes = this.#bytes;
      } else if (event.type === "error") this.#failure ??= event.failure;
      else if (event.type === "finish") this.#finish ??= event;
      else if (this.#failure === undefined && event.choice === 0) this.#takePiece(event, shown);
    }
    return shown;
  }

  /** Returns the answer as a message for the model. */
  message(): AddedMessage {
    const text = this.text;
    const reasoning = this.#thoughts.join("");
    return {
      role: "assistant",
      content: text === "" ? null : text,
      ...(reasoning !== "" && { reasoning }),
      ...(this.#details.length > 0 && { reasoning_details: this.#details }),
      tool_calls: this.calls.map(({ id, name, arguments: json, extraContent }) => ({
        id,
        type: "function",
        function: { name, arguments: json },
        ...(extraContent !== undefined && { extra_content: extraContent }),
      })),
    };
  }

  #takePiece(
    event: Exclude<ChatEvent, { readonly type: "usage" | "error" | "finish" }>,
    shown: ChatEvent[],
  ): void {
    this.#bytes += answerBytes(event);
    if (this.#bytes > this.#options.maxBytes) {
      throw new ProviderFailure(
        "unavailable",
        "the answer exceeds the output token limit of the call",
      );
    }
    if (event.type === "tool_call") {
      const piece = this.#takeCall(event);
      if (piece !== undefined) shown.push(piece);
      return;
    }
    if (event.type === "text") {
      if (event.item !== this.#item) this.#messageFrom = this.#texts.length;
      this.#item = event.item;
      this.#texts.push(event.text);
    } else if (event.type === "reasoning") {
      this.#messageFrom = this.#texts.length;
      this.#thoughts.push(event.text);
      for (const detail of event.details ?? []) addDetail(this.#details, detail);
    }
    shown.push(event);
  }

  /** Returns the piece for the client, or undefined if the gateway runs the call. */
  #takeCall(piece: CallPiece): CallPiece | undefined {
    const { index, id, name, arguments: json = "", extraContent } = piece;
    const gatewayCall = this.#calls.get(index);
    if (gatewayCall !== undefined) {
      this.#countBytes(json);
      gatewayCall.arguments += json;
      return undefined;
    }
    const at = this.#shown.get(index);
    if (at !== undefined) return { ...piece, index: at };
    // A piece of a call that never began.
    if (id === undefined || name === undefined) return undefined;
    if (this.#options.isGatewayTool(name)) {
      this.#countBytes(name + json, BYTES_OF_CALL);
      this.#calls.set(index, {
        ...{ id, name, arguments: json },
        ...(extraContent !== undefined && { extraContent }),
      });
      return undefined;
    }
    const shownIndex = this.#options.shownBefore + this.#shown.size;
    this.#shown.set(index, shownIndex);
    return { ...piece, index: shownIndex };
  }

  #countBytes(text: string, besides = 0): void {
    this.#callBytes += Buffer.byteLength(text) + besides;
    if (this.#callBytes <= MAX_CALL_BYTES) return;
    throw new ProviderFailure("unavailable", "the provider's tool calls are too long");
  }
}
