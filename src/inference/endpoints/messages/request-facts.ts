import type { ChatBody } from "../../../providers/chat-body.ts";
import { type PromptSize, promptSize } from "../chat-completions/cost-bound.ts";
import { type BodyShape, shapedBody } from "../chat-completions/provider-body.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { cacheControlsOf, withDefaultLifetime, withPlainCache } from "./cache-controls.ts";
import { chatRequestOf } from "./chat-request.ts";
import { nativeMedia } from "./native-media.ts";
import { nativeFields, unpricedFields } from "./native-request.ts";
import { platformFields, unsupportedByPlatforms } from "./platform-request.ts";
import { isCustom, type MessagesBody, type Tool, WITHOUT_COUNTERPART } from "./request.ts";

/** The facts of a request that decisions need. They are small for a request of any length. */
export interface MessagesFacts {
  /** The request, translated to a chat call. */
  readonly chat: ChatRequest;
  /** Names of parts without a counterpart in the chat call. */
  readonly untranslated: readonly string[];
  /** Names of parts that are never sent to a provider. */
  readonly unpriced: readonly string[];
  /** Names of parts that Anthropic's models accept only at Anthropic. */
  readonly anthropicOnly: readonly string[];
  /** Size of the prompt of the translated chat call. */
  readonly size: PromptSize;
  /** Size of the prompt as a provider of Anthropic's API receives it. */
  readonly nativeSize: PromptSize;
  readonly hasCacheControl: boolean;
}

/** Maximum number of names. More than a response header lists. */
const MAX_LISTED = 100;

export function factsOf(body: MessagesBody): MessagesFacts {
  const { request: chat, untranslated } = chatRequestOf(body, false);
  const size = promptSize(chat);
  const { longLifetime, isAny } = cacheControlsOf(body);
  return {
    chat,
    untranslated: untranslated.slice(0, MAX_LISTED),
    unpriced: [...(body[WITHOUT_COUNTERPART] ?? []), ...unpricedFields(body)].slice(0, MAX_LISTED),
    anthropicOnly: unsupportedByPlatforms(body).slice(0, MAX_LISTED),
    size,
    nativeSize: {
      ...size,
      bytes: nativeBytes(body),
      media: nativeMedia(body),
      hasTools: size.hasTools || (body.tools?.length ?? 0) > 0,
      longCacheLifetime: longLifetime,
    },
    hasCacheControl: isAny,
  };
}

/** Fields that never become part of a prompt. */
const NOT_PROMPT_FIELDS: ReadonlySet<string> = new Set([
  "model",
  "models",
  "provider",
  "route_explain",
  "session_id",
  "trace",
  "metadata",
  "stream",
  "max_tokens",
  "temperature",
  "top_p",
  "top_k",
  "stop_sequences",
  "guardrail",
]);

/**
 * Bytes for each of Anthropic's tools. A request only names them, and the provider describes each in up to
 * this number of tokens.
 */
const BYTES_OF_ANTHROPIC_TOOL = 1_500;
const isAnthropicTool = (tool: Tool): boolean => !isCustom(tool);

/** Returns the UTF-8 bytes of all fields that can become part of the prompt, in their longest form. */
function nativeBytes(body: MessagesBody): number {
  let bytes = 0;
  for (const field in body) {
    const value = body[field];
    if (value === null || value === undefined || NOT_PROMPT_FIELDS.has(field)) continue;
    const text = JSON.stringify(value);
    const plain = Buffer.byteLength(text);
    if (field === "tools")
      bytes += BYTES_OF_ANTHROPIC_TOOL * body.tools!.filter(isAnthropicTool).length;
    bytes += plain === text.length ? plain : Math.max(plain, Buffer.byteLength(text.normalize()));
  }
  return bytes;
}

/** The form in which a provider receives a request. */
export type MessagesShape =
  | {
      readonly wire: "messages";
      readonly maxTokens: number | undefined;
      /** True if caches can have a lifetime of more than five minutes. */
      readonly keepsLongCache: boolean;
      /** Facts of a platform other than Anthropic. `editsContext` is true if it supports context edits. */
      readonly platform?: { readonly editsContext: boolean } | undefined;
    }
  | { readonly wire: "chat"; readonly keepsCacheControl: boolean; readonly body: BodyShape };

export function shapedMessages(body: MessagesBody, shape: MessagesShape): Record<string, unknown> {
  if (shape.wire === "chat") {
    return shapedBody(chatRequestOf(body, shape.keepsCacheControl).request, shape.body);
  }
  const { keepsLongCache, platform, maxTokens } = shape;
  const cached = keepsLongCache ? body : withDefaultLifetime(body);
  if (platform === undefined) return nativeFields(cached, maxTokens);
  return nativeFields(platformFields(withPlainCache(cached), platform.editsContext), maxTokens);
}

/** An accepted request with its complete body. */
export interface MessagesSource extends MessagesFacts {
  /** The hash for its idempotency key. Set if a work thread has read the body. */
  readonly hash?: string;
  /** The original body with the members of its preset. Absent if a work thread holds it. */
  readonly body?: MessagesBody;
  shapedAs(shape: MessagesShape): ChatBody;
}
