import type { LongRead } from "../../../http/route.ts";
import type { SharedBytes } from "../../../lib/shared-bytes.ts";
import type { ChatBody } from "../../../providers/chat-body.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import type { Preset } from "../../definitions/definition-cache.ts";
import type { PromptSize } from "../chat-completions/cost-bound.ts";
import { chatRoutingView, type LongChatFacts } from "../chat-completions/long-chat.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import type { LongBodies, LongBody } from "../long-bodies.ts";
import { APPLY_GUARDRAILS } from "../paid-route.ts";
import type { MessagesFacts, MessagesShape, MessagesSource } from "./request-facts.ts";

/** The facts that a work thread returns about a body that has passed all checks. */
export interface LongMessagesFacts extends Omit<MessagesFacts, "chat"> {
  readonly chat: LongChatFacts;
}

/** A request whose body a work thread holds. */
export class LongMessages implements MessagesSource {
  readonly chat: ChatRequest;
  readonly hash: string;
  readonly untranslated: readonly string[];
  readonly unpriced: readonly string[];
  readonly anthropicOnly: readonly string[];
  readonly size: PromptSize;
  readonly nativeSize: PromptSize;
  readonly hasCacheControl: boolean;
  readonly #body: LongBody<LongMessagesFacts>;

  constructor(body: LongBody<LongMessagesFacts>) {
    const { chat, untranslated, unpriced, anthropicOnly } = body.facts;
    const { size, nativeSize, hasCacheControl } = body.facts;
    this.chat = chatRoutingView(chat, body);
    this.hash = chat.hash;
    this.untranslated = untranslated;
    this.unpriced = unpriced;
    this.anthropicOnly = anthropicOnly;
    this.size = size;
    this.nativeSize = nativeSize;
    this.hasCacheControl = hasCacheControl;
    this.#body = body;
  }

  get bytes(): SharedBytes {
    return this.#body.bytes;
  }

  get preset(): Preset | undefined {
    return this.#body.preset;
  }

  shapedAs(shape: MessagesShape): ChatBody {
    return this.#body.shapedAs(shape);
  }

  async [APPLY_GUARDRAILS](guard: CallGuard): Promise<LongMessages> {
    return new LongMessages(await this.#body.screened(guard));
  }
}

/** Counts the tokens of a prompt in a work thread. */
export interface CountTokensCall {
  readonly kind: "messages.count";
  /** The request, which has passed all checks. */
  readonly body: string | SharedBytes;
  /** The preset that the body names. A string body already includes its members. */
  readonly preset?: Preset | undefined;
}

/** Reads, in a work thread, a body that is too long for the event loop: see `LongBodies`. */
export async function readLongMessages(
  bodies: LongBodies,
  form: "messages" | "messages.count",
  bytes: SharedBytes,
  owner: string,
  signal: AbortSignal,
): Promise<LongRead> {
  const body = await bodies.read<LongMessagesFacts>(form, bytes, owner, signal);
  return { value: new LongMessages(body), release: () => body.release() };
}
