import type { LongRead } from "../../../http/route.ts";
import type { SharedBytes } from "../../../lib/shared-bytes.ts";
import type { ChatBody } from "../../../providers/chat-body.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import type { Preset } from "../../definitions/definition-cache.ts";
import type { LongBodies, LongBody } from "../long-bodies.ts";
import { APPLY_GUARDRAILS } from "../paid-route.ts";
import type { PromptSize } from "./cost-bound.ts";
import type { BodyShape } from "./provider-body.ts";
import { type ChatRequest, OFFLOADED_BODY } from "./request.ts";
import type { RequestedParts } from "./request-fields.ts";

/** The facts that a work thread returns about a body that has passed all checks. */
export interface LongChatFacts {
  /** The reduced request, made by `routingView`. */
  readonly request: ChatRequest;
  readonly size: PromptSize;
  readonly parts: RequestedParts;
  /** The hash of the conversation's beginning: see `conversationHead`. */
  readonly head: string;
  /** The hash of the body's text: see `bodyHash`. */
  readonly hash: string;
  /** The question for a web search: see `lastQuestion`. Set if the chat can need a search. */
  readonly question?: string;
  /** See `customToolsOf`. Absent if there are none. */
  readonly customTools?: readonly string[];
}

/** The complete body that a reduced request represents. */
export interface OffloadedBody
  extends Pick<LongChatFacts, "size" | "parts" | "head" | "hash" | "question" | "customTools"> {
  readonly preset: Preset | undefined;
  shapedAs(shape: BodyShape): ChatBody;
}

/** Reads, in a work thread, a body that is too long for the event loop: see `LongBodies`. */
export async function readLongChat(
  bodies: LongBodies,
  bytes: SharedBytes,
  owner: string,
  signal: AbortSignal,
): Promise<LongRead & { readonly value: ChatRequest }> {
  const body = await bodies.read<LongChatFacts>("chat", bytes, owner, signal);
  return { value: screenableChat(body), release: () => body.release() };
}

/** Returns the reduced request, with its complete body as a member. */
export function chatRoutingView(
  { request, ...facts }: LongChatFacts,
  body: Pick<LongBody<unknown>, "shapedAs" | "preset">,
): ChatRequest {
  const { preset } = body;
  const long: OffloadedBody = { ...facts, preset, shapedAs: (shape) => body.shapedAs(shape) };
  return Object.assign(request, { [OFFLOADED_BODY]: long });
}

function screenableChat(body: LongBody<LongChatFacts>): ChatRequest {
  return Object.assign(chatRoutingView(body.facts, body), {
    [APPLY_GUARDRAILS]: async (guard: CallGuard) => screenableChat(await body.screened(guard)),
  });
}
