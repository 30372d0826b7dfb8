import { doneInTime } from "../../lib/done-in-time.ts";
import type { GatewayError } from "../../lib/errors.ts";
import { latin1OfText } from "../../lib/event-splitter.ts";
import { usdNumber } from "../../lib/money.ts";
import { usageBody } from "../billing/usage.ts";
import type { Idempotency } from "../idempotency/idempotency.ts";
import { ChatStream } from "./chat-stream.ts";
import type { ChatStreamDependencies } from "./chat-stream-call.ts";
import { estimatedPromptTokens } from "./cost-bound.ts";
import {
  type AdmittedChat,
  answerHeaders,
  type ChatOutcome,
  explainFailure,
  sentOutputTokens,
} from "./prepared-chat.ts";
import { providerBody } from "./provider-body.ts";

export interface StreamChatDependencies extends ChatStreamDependencies {
  readonly idempotency: Idempotency;
  /** An error as every answer tells it. */
  errorEnvelope(error: GatewayError, requestId: string): unknown;
}

const STREAM_HEADERS = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  connection: "keep-alive",
  // Proxies that gather a response before they pass it on would hold the stream back.
  "x-accel-buffering": "no",
} as const;

/**
 * A streamed chat completion. Waits for the first event, so that a failure before it has its own status;
 * a provider silent for longer than the keepalive interval is waited for in an open stream.
 */
export async function streamChat(
  dependencies: StreamChatDependencies,
  chat: AdmittedChat,
): Promise<ChatOutcome> {
  const { idempotency } = dependencies;
  const { claim } = chat;
  const stream = new ChatStream(dependencies, {
    requestId: chat.requestId,
    hold: chat.hold,
    candidates: chat.plan.candidates,
    details: chat.details,
    includeUsage: chat.request.stream_options?.include_usage === true,
    choices: chat.request.n ?? 1,
    hidesReasoning: chat.hidesReasoning,
    promptTokens: (candidate) => estimatedPromptTokens(chat.size, candidate.model),
    providerBody: (candidate) =>
      providerBody(chat.request, candidate.upstreamModel, sentOutputTokens(chat)),
    usageChunk: (usage, costNano, created, candidate) =>
      frameOf({
        id: `chatcmpl-${chat.requestId.slice(4)}`,
        object: "chat.completion.chunk",
        created,
        model: candidate.model.id,
        choices: [],
        usage: usageBody(usage, usdNumber(costNano)),
      }),
    errorFrame: (error) => frameOf(dependencies.errorEnvelope(error, chat.requestId)),
    clientSignal: chat.clientSignal,
    log: chat.log,
    store:
      claim &&
      ((bytes) => {
        const headers = answerHeaders(chat, stream.candidate, stream.trail);
        return idempotency.store(claim, 200, Object.assign(headers, STREAM_HEADERS), bytes);
      }),
    free: claim && (() => idempotency.free(claim)),
  });
  const opening = stream.openOrFinish();
  // Where the answer begins before this is known, its body tells the failure.
  opening.catch(() => {});
  let isOpen: boolean;
  try {
    isOpen = await doneInTime(opening, dependencies.steadyClock, dependencies.keepaliveMs);
  } catch (error) {
    explainFailure(chat, stream.trail);
    throw error;
  }
  const { candidate } = stream;
  const whole = stream.whole();
  // What is over needs no further care, and is told of like any other answer.
  if (whole !== undefined) chat.log.isDeferred = false;
  const headers = answerHeaders(chat, isOpen ? candidate : undefined, stream.trail);
  Object.assign(headers, STREAM_HEADERS);
  headers["x-gateway-latency-ms"] = String(Math.round(performance.now() - chat.startedMs));
  return whole === undefined
    ? { kind: "stream", headers, body: stream.body() }
    : { kind: "whole-stream", headers, body: whole };
}

/** A frame of the stream, as bytes kept as characters. */
function frameOf(value: unknown): string {
  return `data: ${latin1OfText(JSON.stringify(value))}\n\n`;
}
