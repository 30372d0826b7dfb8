import type { ProviderPreferences } from "../../call/routing/preferences.ts";
import type { ItemsRequest } from "../../../providers/chat-body.ts";
import type { LongChatBody } from "./long-chat.ts";

/** The endpoint, as the hash of an idempotent call names it. */
export const CHAT_ROUTE = "POST /v1/chat/completions";

/** The member of a request that stands for the whole of it where that lies in a work thread. */
export const LONG_BODY: unique symbol = Symbol("long body");

/** The member that has what no chat has words for. */
export const ITEM_FORM: unique symbol = Symbol("item form");

/** A chat completion request after its schema was checked (spec 4.5). Further members go to the provider. */
export interface ChatRequest {
  readonly model?: string | null;
  readonly messages: readonly ChatMessage[];
  readonly stream?: boolean | null;
  readonly max_tokens?: number | null;
  readonly max_completion_tokens?: number | null;
  readonly n?: number | null;
  readonly tools?: readonly unknown[] | null;
  readonly response_format?: unknown;
  readonly modalities?: readonly string[] | null;
  readonly audio?: Record<string, unknown> | null;
  readonly plugins?:
    | readonly ({ readonly id: string } & Readonly<Record<string, unknown>>)[]
    | null;
  readonly debug?: Record<string, unknown> | null;
  readonly transforms?: readonly string[] | null;
  readonly stream_options?: { readonly include_usage?: boolean } | null;
  readonly usage?: { readonly include?: boolean | null } | null;
  readonly include_reasoning?: boolean | null;
  readonly reasoning?: {
    readonly effort?: string | null;
    readonly summary?: string | null;
    readonly exclude?: boolean;
    readonly enabled?: boolean;
  } | null;
  readonly models?: readonly string[] | null;
  readonly provider?: ProviderPreferences | null;
  readonly route_explain?: boolean | null;
  readonly user?: string | null;
  readonly session_id?: string | null;
  readonly trace?: Record<string, unknown> | null;
  readonly metadata?: Record<string, unknown> | null;
  readonly store?: boolean | null;
  /**
   * Where the body is too long for the event loop: the whole of it. The other members are then cut to what
   * the gateway itself reads (`leanRequest`), and `messages` is empty.
   */
  readonly [LONG_BODY]?: LongChatBody;
  /** Makes its form in items, without the tools that a candidate lacks: see `planResponses`. */
  readonly [ITEM_FORM]?: (leftOut: readonly string[]) => ItemsRequest;
  readonly [field: string]: unknown;
}

/** The limit of output tokens that the caller set, under either of its names. */
export function statedOutputLimit(request: ChatRequest): number | undefined {
  return request.max_completion_tokens ?? request.max_tokens ?? undefined;
}

export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly ContentPart[] | null;
  readonly [field: string]: unknown;
}

export interface ContentPart {
  readonly type: string;
  readonly text?: string;
  readonly [field: string]: unknown;
}

/**
 * Names what the turns of one conversation have in common: everything up to the user's first message. A
 * provider that has served one turn finds that much of the next one's prompt in its cache.
 */
export function conversationHead({ messages }: ChatRequest): string {
  const first = messages.findIndex(({ role }) => role === "user");
  const head = first === -1 ? messages : messages.slice(0, first + 1);
  return Bun.hash.xxHash64(JSON.stringify(head)).toString(36);
}
