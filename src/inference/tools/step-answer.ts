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

/** Of what a model writes for the gateway's tools in one step, in UTF-8. */
const MAX_CALL_BYTES = 1_048_576;
/** Counted for each call besides what it says. */
const BYTES_OF_CALL = 64;

interface StepOptions {
  /** Whether the gateway runs the function of that name. */
  isOwn(name: string): boolean;
  /** Number of calls that the client was shown before this step. */
  readonly shownBefore: number;
  /** UTF-8 bytes beyond which the answer fails. */
  readonly maxBytes: number;
}

/**
 * What a model answers in one step: it goes to the client as it comes, but for calls of the gateway's own tools and
 * the finish, and is kept for the next step.
 */
export class StepAnswer {
  readonly #options: StepOptions;
  readonly #texts: string[] = [];
  /** Where in these the message begins that was written last, and the provider's number of it. */
  #messageFrom = 0;
  #item: number | undefined;
  readonly #thoughts: string[] = [];
  readonly #details: ReasoningDetail[] = [];
  /** Calls of the gateway's tools by their index; the arguments grow. */
  readonly #calls = new Map<number, { -readonly [Member in keyof ToolCall]: ToolCall[Member] }>();
  readonly #shown = new Map<number, number>();
  #bytes = 0;
  /** Those of them that the reported usage includes. */
  #reportedBytes = 0;
  #callBytes = 0;
  #finish: Finish | undefined;
  #usage: Usage | undefined;
  #failure: ProviderFailure | undefined;

  constructor(options: StepOptions) {
    this.#options = options;
  }

  /** Undefined until the model has ended its answer. */
  get finish(): Finish | undefined {
    return this.#finish;
  }

  get failure(): ProviderFailure | undefined {
    return this.#failure;
  }

  get text(): string {
    return this.#texts.join("");
  }

  /** The message that was written last, and the provider's number of it. */
  get lastMessage(): { readonly text: string; readonly item: number | undefined } {
    return { text: this.#texts.slice(this.#messageFrom).join(""), item: this.#item };
  }

  /** Of the gateway's own tools, in the order in which they began. */
  get calls(): readonly ToolCall[] {
    return [...this.#calls.values()];
  }

  /** How many calls the client is to carry out. */
  get shownCalls(): number {
    return this.#shown.size;
  }

  /** With what was counted here of the answer since it was reported. */
  get reportedUsage(): Usage | undefined {
    const usage = this.#usage;
    const newTokens = tokensOfBytes(this.#bytes - this.#reportedBytes);
    if (usage === undefined || newTokens === 0) return usage;
    return { ...usage, completionTokens: usage.completionTokens + newTokens, estimated: true };
  }

  /** Tokens of the answer so far, counted here. */
  get countedTokens(): number {
    return tokensOfBytes(this.#bytes);
  }

  /** Whether usage that was counted here has changed although the client sees nothing of it. */
  get hidesTokens(): boolean {
    return this.#callBytes > 0 && this.#usage === undefined;
  }

  /** Takes what came, and returns what of it the client gets; usage is its taker's matter. */
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

  /** What goes back to the model of its answer. */
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
      throw new ProviderFailure("unavailable", "the provider went on beyond its limit of tokens");
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

  /** The piece as the client gets it, where it is of a call that the client carries out. */
  #takeCall(piece: CallPiece): CallPiece | undefined {
    const { index, id, name, arguments: json = "", extraContent } = piece;
    const own = this.#calls.get(index);
    if (own !== undefined) {
      this.#noteBytes(json);
      own.arguments += json;
      return undefined;
    }
    const at = this.#shown.get(index);
    if (at !== undefined) return { ...piece, index: at };
    // A piece of a call that never began.
    if (id === undefined || name === undefined) return undefined;
    if (this.#options.isOwn(name)) {
      this.#noteBytes(name + json, BYTES_OF_CALL);
      this.#calls.set(index, {
        ...{ id, name, arguments: json },
        ...(extraContent !== undefined && { extraContent }),
      });
      return undefined;
    }
    const place = this.#options.shownBefore + this.#shown.size;
    this.#shown.set(index, place);
    return { ...piece, index: place };
  }

  #noteBytes(text: string, besides = 0): void {
    this.#callBytes += Buffer.byteLength(text) + besides;
    if (this.#callBytes <= MAX_CALL_BYTES) return;
    throw new ProviderFailure("unavailable", "the provider's calls of tools are too long");
  }
}
