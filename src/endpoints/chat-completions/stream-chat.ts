import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type { Fees } from "../../calls/admission.ts";
import { answerHeaders, explainFailure } from "../../calls/answer-headers.ts";
import { type CallOutcome, sentLimit } from "../../calls/call.ts";
import type { Idempotency } from "../../calls/idempotency/idempotency.ts";
import type { Candidate } from "../../calls/routing/plan-route.ts";
import { type DeadlineQueue, doneBeforeDeadline } from "../../lib/deadlines.ts";
import type { GatewayError } from "../../lib/errors.ts";
import { latin1OfText } from "../../lib/event-splitter.ts";
import { usdNumber } from "../../lib/money.ts";
import type { RequestFacts } from "../../lib/request-facts.ts";
import type { Usage } from "../../lib/usage.ts";
import type { Hold } from "../../money/interface.ts";
import type { ChatBody } from "../../providers/chat-body.ts";
import { ChatStream } from "./chat-stream.ts";
import type { ChatStreamCall, ChatStreamDependencies } from "./chat-stream-call.ts";
import { estimatedPromptTokens } from "./cost-bound.ts";
import type { AdmittedChat } from "./endpoint.ts";
import { providerBody } from "./provider-body.ts";
import { completionId, usageChunk } from "./render-answer.ts";
import type { ChatRequest } from "./request.ts";

export interface StreamChatDependencies extends ChatStreamDependencies {
  /** The keepalive interval from when a stream is asked for. */
  readonly openings: DeadlineQueue;
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
): Promise<CallOutcome> {
  const call = new StreamedChat(dependencies, chat);
  const { stream } = call;
  let isOpen: boolean;
  try {
    // Where the answer begins before this is known, its body tells the failure.
    isOpen = await doneBeforeDeadline(stream.open(), dependencies.openings);
  } catch (error) {
    explainFailure(chat, stream);
    throw error;
  }
  const { candidate } = stream;
  const headers = answerHeaders(chat, isOpen ? candidate : undefined, stream);
  Object.assign(headers, STREAM_HEADERS);
  headers["x-gateway-latency-ms"] = String(Math.round(performance.now() - chat.startedMs));
  return { kind: "stream", headers, body: stream.body() };
}

/** What the stream of one chat completion is asked for. */
class StreamedChat implements ChatStreamCall {
  readonly stream: ChatStream;
  readonly requestId: string;
  readonly hold: Hold;
  readonly fees: Fees;
  readonly title: string;
  readonly candidates: readonly Candidate[];
  readonly details: Record<string, unknown> | null;
  readonly includeUsage: boolean;
  readonly choices: number;
  readonly hidesReasoning: boolean;
  readonly clientSignal: AbortSignal;
  readonly log: RequestFacts;
  readonly store: ChatStreamCall["store"];
  readonly free: ChatStreamCall["free"];
  readonly #dependencies: StreamChatDependencies;
  readonly #chat: AdmittedChat;

  constructor(dependencies: StreamChatDependencies, chat: AdmittedChat) {
    this.#dependencies = dependencies;
    this.#chat = chat;
    this.requestId = chat.requestId;
    this.hold = chat.hold;
    this.fees = chat.fees;
    this.title = chat.title;
    this.candidates = chat.plan.candidates;
    this.details = chat.details;
    this.includeUsage = asksForUsage(chat.request.fields);
    this.choices = chat.request.fields.n ?? 1;
    this.hidesReasoning = chat.request.hidesReasoning;
    this.clientSignal = chat.clientSignal;
    this.log = chat.log;
    if (chat.claim !== undefined) {
      const { store, free } = this.#keptUnder(chat.claim);
      this.store = store;
      this.free = free;
    }
    this.stream = new ChatStream(dependencies, this);
  }

  promptTokens(candidate: Candidate): number {
    return estimatedPromptTokens(this.#chat.request.size, candidate.terms);
  }

  providerBody(candidate: Candidate): ChatBody {
    const chat = this.#chat;
    const outputTokens = sentLimit(chat, candidate);
    return providerBody(chat.request.fields, candidate, outputTokens, chat.plan.lacked);
  }

  usageChunk(usage: Usage, costNano: bigint, created: number, candidate: Candidate): string {
    const answer = { id: completionId(this.requestId), model: candidate.model.id, created };
    return frameOf(usageChunk(answer, usage, usdNumber(costNano)));
  }

  errorFrame(error: GatewayError): string {
    return frameOf(this.#dependencies.errorEnvelope(error, this.requestId));
  }

  #keptUnder(claim: IdempotencyClaim) {
    const { idempotency } = this.#dependencies;
    return {
      store: (bytes: Uint8Array | null) => {
        const headers = answerHeaders(this.#chat, this.stream.candidate, this.stream);
        return idempotency.store(claim, 200, Object.assign(headers, STREAM_HEADERS), bytes, {
          isClaimNeeded: false,
        });
      },
      free: () => idempotency.free(claim),
    };
  }
}

function asksForUsage({ stream_options: options, usage }: ChatRequest): boolean {
  return options?.include_usage === true || usage?.include === true;
}

/** A frame of the stream, as bytes kept as characters. */
function frameOf(value: unknown): string {
  return `data: ${latin1OfText(JSON.stringify(value))}\n\n`;
}
