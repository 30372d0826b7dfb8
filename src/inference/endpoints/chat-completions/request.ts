import type { ItemsRequest } from "../../../providers/chat-body.ts";
import type { ProviderPreferences } from "../../call/routing/preferences.ts";
import type { OffloadedBody } from "./long-chat.ts";

/** The name of the endpoint in the hash of an idempotent request. */
export const CHAT_ROUTE = "POST /v1/chat/completions";

/** The member that represents the complete body if a work thread holds it. */
export const OFFLOADED_BODY: unique symbol = Symbol("long body");

/** The member that carries parts that a chat completion cannot express. */
export const ITEM_FORM: unique symbol = Symbol("item form");

/** A chat completion request that has passed its schema (spec 4.5). Further members are passed to the provider. */
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
   * The complete body, set if it is too long for the event loop. The other members are then reduced to those
   * that the gateway reads (`routingView`), and `messages` is empty.
   */
  readonly [OFFLOADED_BODY]?: OffloadedBody;
  /** Returns the request as items, without the tools that a candidate does not support: see `planResponses`. */
  readonly [ITEM_FORM]?: (leftOut: readonly string[]) => ItemsRequest;
  readonly [field: string]: unknown;
}

/** Returns the output token limit of the request, under either of its names. */
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
 * Returns a hash of the part that all turns of a conversation share: everything up to the user's first
 * message. A provider that has served one turn has that part of the next prompt in its cache.
 */
export function conversationHead({ messages }: ChatRequest): string {
  const first = messages.findIndex(({ role }) => role === "user");
  const head = first === -1 ? messages : messages.slice(0, first + 1);
  return Bun.hash.xxHash64(JSON.stringify(head)).toString(36);
}
