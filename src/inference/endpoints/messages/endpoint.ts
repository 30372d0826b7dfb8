import { anthropicWire } from "../../../http/anthropic-wire.ts";
import type { RouteDefinition } from "../../../http/route.ts";
import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import type { GatewayError } from "../../../lib/errors.ts";
import { isFields, withMembers } from "../../../lib/json.ts";
import type { ChatAnswer, ClientCompletion } from "../../../providers/interface.ts";
import type {
  MessageStream,
  MessagesCall,
  MessagesProvider,
} from "../../../providers/messages-provider.ts";
import type { StreamedAnswer } from "../../../providers/streamed-answer.ts";
import { streamOf, wholeOf } from "../../../providers/transport/call-failures.ts";
import { type ProviderCall, providerRequest, sentLimit } from "../../call/call.ts";
import {
  type AnswerFacts,
  assertRecordable,
  type CostBound,
  type OpenedStream,
  type PaidEndpoint,
  type StreamForm,
} from "../../call/endpoint.ts";
import type { CallGuard } from "../../call/guard/call-guard.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { costBound, countedUsage } from "../chat-completions/cost-bound.ts";
import { conversationHead, OFFLOADED_BODY } from "../chat-completions/request.ts";
import { preparePreset } from "../fill-preset.ts";
import type { LongBodies } from "../long-bodies.ts";
import { paidRoute } from "../paid-route.ts";
import { type AcceptedMessages, type AdmittedMessages, acceptMessages } from "./accepted.ts";
import { messagesCacheFormat } from "./cache-format.ts";
import { readLongMessages } from "./long-messages.ts";
import { frame, MessageRenderer, messageId, PING } from "./message-renderer.ts";
import {
  isNative,
  keepsCacheControl,
  planMessages,
  platformOf,
  pricesLongCache,
} from "./plan-messages.ts";
import { checkMessages, filledMessages } from "./preset.ts";
import { MESSAGES_ROUTE } from "./request.ts";
import { messageAnswer, messageEvent, messagesBody, messagesQuery } from "./schema.ts";
import { messageRender, usageOf } from "./whole-message.ts";

/**
 * The highest limit that counts as meant by the caller. Coding agents send higher limits by default, so those
 * can be lowered to what the credit covers.
 */
const MAX_MEANT_LIMIT = 4_096;

/** The endpoint for messages (contract 11): Anthropic's API for every chat model. */
export class MessagesEndpoint implements PaidEndpoint<AcceptedMessages, ClientCompletion> {
  readonly route = MESSAGES_ROUTE;
  readonly categories = ["chat", "code"] as const;
  readonly title = "Message";
  readonly capability = "chat";
  readonly cacheFormat = messagesCacheFormat;
  readonly stream: StreamForm<AcceptedMessages>;
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.stream = new MessageStreamForm(clock);
  }

  accept(body: unknown, headers: Headers, guard?: CallGuard): AcceptedMessages {
    const accepted = acceptMessages(body, headers, guard?.screensOutput);
    assertRecordable(accepted.fields);
    return accepted;
  }

  affinity({ fields }: AcceptedMessages): string {
    return fields[OFFLOADED_BODY]?.head ?? conversationHead(fields);
  }

  plan(request: AcceptedMessages, plan: RoutePlan): RoutePlan {
    return planMessages(request.needs, plan);
  }

  bound(request: AcceptedMessages, terms: ModelTerms, candidate?: Candidate): CostBound {
    const { fields, needs, maxTokens } = request;
    const isNativeCall = candidate !== undefined && isNative(candidate, needs);
    const bound = costBound(fields, isNativeCall ? needs.nativeSize : needs.size, terms);
    const units = isNativeCall ? maxTokens : Math.min(maxTokens, terms.maxOutputTokens);
    return { ...bound, units };
  }

  statedLimit({ maxTokens }: AcceptedMessages): number | undefined {
    return maxTokens <= MAX_MEANT_LIMIT ? maxTokens : undefined;
  }

  async call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedMessages,
  ): Promise<ClientCompletion> {
    const options = {
      requestId: call.requestId,
      hidesReasoning: false,
      nowSeconds: secondsNow(this.#clock),
    };
    if (isNative(candidate, admitted.request.needs)) {
      return wholeOf(await callNative(call, candidate, admitted)).passThrough(options);
    }
    const answered = wholeOf(await chat(call, candidate, admitted));
    const answer = admitted.guard?.answer(answered) ?? answered;
    return answer.render(messageRender, undefined);
  }

  usage(
    { usage, estimatedTokens }: ClientCompletion,
    request: AcceptedMessages,
    terms: ModelTerms,
  ) {
    return usage ?? countedUsage(request.needs.size, terms, estimatedTokens);
  }

  answer({ body }: ClientCompletion, _request: AcceptedMessages, facts: AnswerFacts) {
    const { requestId, candidate, usage, costUsd } = facts;
    const set = { id: messageId(requestId), model: candidate.model.id };
    if (body instanceof Uint8Array) {
      return withMembers({ ...set, usage: usageOf(usage, costUsd) }, body);
    }
    const { usage: reported } = body;
    const messageUsage = isFields(reported)
      ? { ...reported, cost: costUsd }
      : usageOf(usage, costUsd);
    return JSON.stringify({ ...body, ...set, usage: messageUsage });
  }
}

/** Named server-sent events. The last one is `message_stop`. */
class MessageStreamForm implements StreamForm<AcceptedMessages> {
  readonly contentType = "text/event-stream; charset=utf-8";
  readonly keepalive = PING;
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  choices(): number {
    return 1;
  }

  async open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedMessages,
    output: ByteBuffer,
  ): Promise<OpenedStream> {
    const options = {
      id: messageId(call.requestId),
      model: candidate.model.id,
      hidesReasoning: false,
      nowSeconds: secondsNow(this.#clock),
    };
    if (isNative(candidate, admitted.request.needs)) {
      return streamOf(await callNative(call, candidate, admitted)).passThrough(options, output);
    }
    const answer = streamOf(await chat(call, candidate, admitted));
    const estimatedInput = countedUsage(admitted.request.needs.size, candidate.terms, 0);
    const renderer = new MessageRenderer({ ...options, estimatedInput }, output);
    const reader = answer.events(options);
    return { reader: admitted.guard?.events(reader) ?? reader, answer: renderer };
  }

  usage({ usage, outputTokens }: StreamedAnswer, request: AcceptedMessages, terms: ModelTerms) {
    return usage ?? countedUsage(request.needs.size, terms, outputTokens);
  }

  ending(answer: StreamedAnswer, _request: AcceptedMessages, facts: AnswerFacts): string {
    return (answer as MessageStream<unknown>).closing(facts.usage, facts.costUsd);
  }

  failure(error: GatewayError, requestId: string): string {
    const mapped = anthropicWire.errorOf(error);
    const event = anthropicWire.envelope(mapped, requestId) as { readonly type: "error" };
    return frame({ ...event });
  }
}

/** Sends the request to a provider of Anthropic's API. */
function callNative(
  call: ProviderCall,
  candidate: Candidate,
  admitted: AdmittedMessages,
): ReturnType<MessagesProvider["answer"]> {
  const maxTokens = limitAt(admitted, candidate);
  return candidate.provider.messages!.answer(
    nativeCall(call, candidate, admitted.request, maxTokens),
  );
}

/** Returns the call of a provider of Anthropic's API. Without a limit, it is the call for a token count. */
export function nativeCall(
  call: ProviderCall,
  candidate: Candidate,
  request: AcceptedMessages,
  maxTokens?: number,
): MessagesCall {
  return providerRequest(call, {
    stream: call.stream,
    body: request.source.shapedAs({
      wire: "messages",
      maxTokens,
      keepsLongCache: pricesLongCache(candidate),
      platform: platformOf(candidate, request.needs.betas),
    }),
    version: request.version,
    betas: request.betasFor(candidate),
  });
}

/** Calls a candidate through the chat call. */
function chat(
  call: ProviderCall,
  candidate: Candidate,
  admitted: AdmittedMessages,
): Promise<ChatAnswer> {
  const body = admitted.request.source.shapedAs({
    wire: "chat",
    keepsCacheControl: admitted.request.needs.hasCacheControl && keepsCacheControl(candidate),
    body: {
      model: candidate.upstreamModel,
      outputTokens: Math.min(limitAt(admitted, candidate), candidate.terms.maxOutputTokens),
      leftOut: admitted.plan.unsupported?.get(candidate)?.leftOut ?? [],
    },
  });
  return candidate.provider.chat!(providerRequest(call, { stream: call.stream, body }));
}

/** Returns the token limit of the request, or the one to which the hold was lowered. */
function limitAt(admitted: AdmittedMessages, candidate: Candidate): number {
  const { maxTokens } = admitted.request;
  return Math.min(maxTokens, sentLimit(admitted, candidate) ?? maxTokens);
}

/** Returns the route POST /v1/messages. */
export function messagesRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
): RouteDefinition {
  const endpoint = new MessagesEndpoint(dependencies.calls.clock);
  const description: Parameters<typeof paidRoute>[1] = {
    path: "/v1/messages",
    tag: "Messages",
    operationId: "messages.create",
    summary: "Create message",
    access: { kind: "model", scope: "chat:completions" },
    wire: anthropicWire,
    query: messagesQuery,
    body: messagesBody,
    allowsUnknownFields: true,
    readLongBody: (bytes, owner, signal) =>
      readLongMessages(longBodies, "messages", bytes, owner, signal),
    responses: {
      200: {
        description: "A message, or a stream of events if `stream` is true.",
        schema: messageAnswer,
        eventSchema: messageEvent,
      },
    },
  };
  const prepare = preparePreset(dependencies.definitions, filledMessages, checkMessages);
  return paidRoute(new PaidCall(dependencies, endpoint), description, prepare);
}
