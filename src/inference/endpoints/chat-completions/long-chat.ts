import type { CallGuard } from "../../call/guard/call-guard.ts";
import type { Preset } from "../../definitions/known-definitions.ts";
import type { LongRead } from "../../../http/route.ts";
import type { SharedBytes } from "../../../lib/shared-bytes.ts";
import type { ChatBody } from "../../../providers/chat-body.ts";
import type { LongBodies, LongBody } from "../long-bodies.ts";
import { SCREENED } from "../paid-route.ts";
import type { PromptSize } from "./cost-bound.ts";
import type { BodyShape } from "./provider-body.ts";
import { type ChatRequest, LONG_BODY } from "./request.ts";
import type { AskedParts } from "./request-fields.ts";

/** What the thread reports of a body that has passed all checks. */
export interface LongChatFacts {
  /** Made by `leanRequest`. */
  readonly request: ChatRequest;
  readonly size: PromptSize;
  readonly parts: AskedParts;
  /** See `conversationHead`. */
  readonly head: string;
  /** Of its text: see `bodyHash`. */
  readonly hash: string;
  /** See `lastQuestion`; of a chat that may be searched for. */
  readonly question?: string;
  /** See `customToolsOf`; absent if there are none. */
  readonly customTools?: readonly string[];
}

/** The whole body behind a lean request. */
export interface LongChatBody
  extends Pick<LongChatFacts, "size" | "parts" | "head" | "hash" | "question" | "customTools"> {
  readonly preset: Preset | undefined;
  shapedAs(shape: BodyShape): ChatBody;
}

/** Reads a body that is too long for the event loop: see `LongBodies`. */
export async function readLongChat(
  bodies: LongBodies,
  bytes: SharedBytes,
  owner: string,
  signal: AbortSignal,
): Promise<LongRead & { readonly value: ChatRequest }> {
  const body = await bodies.read<LongChatFacts>("chat", bytes, owner, signal);
  return { value: screenableChat(body), release: () => body.release() };
}

/** The lean request, with the whole of it behind it. */
export function leanChat(
  { request, ...facts }: LongChatFacts,
  body: Pick<LongBody<unknown>, "shapedAs" | "preset">,
): ChatRequest {
  const { preset } = body;
  const long: LongChatBody = { ...facts, preset, shapedAs: (shape) => body.shapedAs(shape) };
  return Object.assign(request, { [LONG_BODY]: long });
}

function screenableChat(body: LongBody<LongChatFacts>): ChatRequest {
  return Object.assign(leanChat(body.facts, body), {
    [SCREENED]: async (guard: CallGuard) => screenableChat(await body.screened(guard)),
  });
}
