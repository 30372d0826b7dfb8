import type { ChatBody } from "../../../providers/chat-body.ts";
import { type PromptSize, promptSize } from "../chat-completions/cost-bound.ts";
import { type BodyShape, shapedBody } from "../chat-completions/provider-body.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { cacheControlsOf, withPlainCache, withUsualCache } from "./cache-controls.ts";
import { chatRequestOf } from "./chat-request.ts";
import { passedMedia } from "./passed-media.ts";
import { passedFields, unpricedFields } from "./passed-request.ts";
import { platformFields, platformsLack } from "./platform-request.ts";
import { isCustom, type MessagesBody, type Tool, WITHOUT_COUNTERPART } from "./request.ts";

/** What decides about a request, whatever its length. */
export interface MessagesFacts {
  /** As the chat call takes it. */
  readonly chat: ChatRequest;
  /** What has no counterpart there. */
  readonly untranslated: readonly string[];
  /** What no provider gets. */
  readonly unpriced: readonly string[];
  /** What Anthropic's models take at Anthropic alone. */
  readonly platformsLack: readonly string[];
  /** Of the prompt as the chat call has it. */
  readonly size: PromptSize;
  /** Of the prompt as a provider of Anthropic's wire gets it. */
  readonly passedSize: PromptSize;
  readonly hasCacheControl: boolean;
}

/** More names than a header lists. */
const MAX_LISTED = 100;

export function factsOf(body: MessagesBody): MessagesFacts {
  const { request: chat, untranslated } = chatRequestOf(body, false);
  const size = promptSize(chat);
  const { longLifetime, isAny } = cacheControlsOf(body);
  return {
    chat,
    untranslated: untranslated.slice(0, MAX_LISTED),
    unpriced: [...(body[WITHOUT_COUNTERPART] ?? []), ...unpricedFields(body)].slice(0, MAX_LISTED),
    platformsLack: platformsLack(body).slice(0, MAX_LISTED),
    size,
    passedSize: {
      ...size,
      bytes: passedBytes(body),
      media: passedMedia(body),
      hasTools: size.hasTools || (body.tools?.length ?? 0) > 0,
      longCacheLifetime: longLifetime,
    },
    hasCacheControl: isAny,
  };
}

/** Members that never become part of a prompt. */
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

/** Tools of Anthropic's own are named alone, and described to the model in up to so many tokens. */
const BYTES_OF_KNOWN_TOOL = 1_500;
const isKnown = (tool: Tool): boolean => !isCustom(tool);

/** UTF-8 bytes of all that may become part of the prompt, in its longest form. */
function passedBytes(body: MessagesBody): number {
  let bytes = 0;
  for (const field in body) {
    const value = body[field];
    if (value === null || value === undefined || NOT_PROMPT_FIELDS.has(field)) continue;
    const text = JSON.stringify(value);
    const plain = Buffer.byteLength(text);
    if (field === "tools") bytes += BYTES_OF_KNOWN_TOOL * body.tools!.filter(isKnown).length;
    bytes += plain === text.length ? plain : Math.max(plain, Buffer.byteLength(text.normalize()));
  }
  return bytes;
}

/** How a provider gets a request. */
export type MessagesShape =
  | {
      readonly wire: "messages";
      readonly maxTokens: number | undefined;
      /** Whether caches may be kept for longer than five minutes. */
      readonly keepsLongCache: boolean;
      /** Of other platforms than Anthropic: whether they edit the context. */
      readonly platform?: { readonly editsContext: boolean } | undefined;
    }
  | { readonly wire: "chat"; readonly keepsCacheControl: boolean; readonly body: BodyShape };

export function shapedMessages(body: MessagesBody, shape: MessagesShape): Record<string, unknown> {
  if (shape.wire === "chat") {
    return shapedBody(chatRequestOf(body, shape.keepsCacheControl).request, shape.body);
  }
  const { keepsLongCache, platform, maxTokens } = shape;
  const cached = keepsLongCache ? body : withUsualCache(body);
  if (platform === undefined) return passedFields(cached, maxTokens);
  return passedFields(platformFields(withPlainCache(cached), platform.editsContext), maxTokens);
}

/** The whole of a request that was accepted. */
export interface MessagesSource extends MessagesFacts {
  /** For its idempotency key, where a thread has read the body. */
  readonly hash?: string;
  /** As it came, with what its preset adds; absent where a thread has it. */
  readonly body?: MessagesBody;
  shapedAs(shape: MessagesShape): ChatBody;
}
