import { errorEnvelope } from "../../../http/error-response.ts";
import type { RouteDefinition } from "../../../http/route.ts";
import type { ByteBuffer } from "../../../lib/byte-buffer.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import type { GatewayError } from "../../../lib/errors.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import { plus } from "../../../lib/exact-integer.ts";
import { withMembers } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import {
  type ChatAnswer,
  type ClientCompletion,
  ProviderFailure,
} from "../../../providers/interface.ts";
import type { MediaTokens, StreamedAnswer } from "../../../providers/streamed-answer.ts";
import type { AnswerReading } from "../../../providers/thread-work.ts";
import { streamOf, wholeOf } from "../../../providers/transport/call-failures.ts";
import {
  type AdmittedCall,
  type ProviderCall,
  providerRequest,
  sentLimit,
} from "../../call/call.ts";
import {
  type AcceptedRequest,
  type AnswerFacts,
  assertRecordable,
  type OpenedStream,
  type PaidEndpoint,
  type Preparation,
  type StreamForm,
} from "../../call/endpoint.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { type HostedServices, pricedForTools } from "../../tools/hosted-services.ts";
import { searchMissing } from "../../tools/web-search/search-backend.ts";
import { preparePreset } from "../fill-preset.ts";
import type { LongBodies } from "../long-bodies.ts";
import { paidRoute } from "../paid-route.ts";
import { chatCacheFormat } from "./cache-format.ts";
import { ChatSearch } from "./chat-search.ts";
import { costBound, countedUsage, type PromptSize, promptSize } from "./cost-bound.ts";
import { customToolsOf, takesCustomTools, withCustomCalls } from "./custom-tools.ts";
import { type DebugEcho, EchoedBody, wantsEcho } from "./debug-echo.ts";
import { type DocumentTexts, longBodyWithTexts, prepareDocuments } from "./file-parser.ts";
import { readLongChat } from "./long-chat.ts";
import { planTransformed, promptLimit, shareByProvider, usesMiddleOut } from "./middle-out.ts";
import { checkChat, filledChat } from "./preset.ts";
import { providerBody } from "./provider-body.ts";
import {
  annotationsChunk,
  completionId,
  echoChunk,
  openAnswer,
  openTypedAnswer,
  readAnswer,
  usageBody,
  usageChunk,
} from "./render-answer.ts";
import {
  CHAT_ROUTE,
  type ChatRequest,
  conversationHead,
  OFFLOADED_BODY,
  statedOutputLimit,
} from "./request.ts";
import { assertScreenable, assertSupported, assertWellFormed } from "./request-checks.ts";
import { IMAGE_OUTPUT, planFields } from "./request-fields.ts";
import { type HealingPlan, healed, healingPlanOf, RESPONSE_HEALING } from "./response-healing.ts";
import { chatCompletion, chatCompletionBody, chatCompletionChunk } from "./schema.ts";
import { lastQuestion, webPlanOf, withoutSuffix } from "./web-plugin.ts";

/** Features of a chat that the gateway adds to the provider's answer. */
interface ChatExtras {
  readonly echoes?: boolean;
  readonly healing?: HealingPlan | undefined;
  readonly search?: ChatSearch | undefined;
}

/** An accepted chat completion request. */
export class AcceptedChat implements AcceptedRequest {
  readonly fields: ChatRequest;
  /** The hash of the body. Set if a work thread has read the body. */
  readonly bodyHash: string | undefined;
  readonly hidesReasoning: boolean;
  /** True if the answer must show the provider's request body. */
  readonly echoes: boolean;
  readonly healing: HealingPlan | undefined;
  /** The search to run before the provider call. Undefined if the request needs none. */
  readonly search: ChatSearch | undefined;
  readonly customTools: readonly string[];
  #size: PromptSize | undefined;

  constructor(request: ChatRequest, { echoes = false, healing, search }: ChatExtras = {}) {
    this.fields = request;
    this.echoes = echoes;
    this.healing = healing;
    this.search = search;
    this.customTools = customToolsOf(request);
    this.bodyHash = request[OFFLOADED_BODY]?.hash;
    this.hidesReasoning =
      request.include_reasoning === false || request.reasoning?.exclude === true;
  }

  /**
   * The size of the prompt. It is measured on first use, so that a request rejected earlier costs no
   * measurement.
   */
  get size(): PromptSize {
    this.#size ??= promptSize(this.fields);
    return this.#size;
  }
}

interface AnsweredChat extends ClientCompletion {
  /** The provider's request body, if the client requested it. */
  readonly echo?: DebugEcho;
}

interface ChatServices extends Pick<HostedServices, "prices" | "webSearch"> {
  /** Lets answers show the provider's request body. */
  readonly allowsEcho?: boolean;
  /** Repairs JSON answers. Without a thread, the event loop repairs them. */
  readonly thread?: AnswerReading["thread"];
  readonly documents?: DocumentTexts | undefined;
}

export type AdmittedChat = AdmittedCall<AcceptedChat>;

/** The endpoint for chat completions (spec 4.5). */
export class ChatEndpoint implements PaidEndpoint<AcceptedChat, AnsweredChat> {
  readonly route = CHAT_ROUTE;
  readonly categories = ["chat", "code"] as const;
  readonly alsoServes = IMAGE_OUTPUT;
  readonly title = "Chat completion";
  readonly capability = "chat";
  readonly cacheFormat = chatCacheFormat;
  readonly stream: StreamForm<AcceptedChat>;
  readonly #clock: Clock;
  readonly #services: ChatServices;

  constructor(clock: Clock, services: ChatServices) {
    this.#clock = clock;
    this.#services = services;
    this.stream = new ChatStreamForm(clock);
  }

  accept(body: unknown): AcceptedChat {
    const request = withoutSuffix(body as ChatRequest);
    // The work thread has already checked a long body completely.
    if (request[OFFLOADED_BODY] === undefined) {
      assertWellFormed(request);
      assertRecordable(request);
    }
    assertSupported(request);
    return new AcceptedChat(request, {
      echoes: wantsEcho(request, this.#services.allowsEcho === true),
      healing: healingPlanOf(request),
      search: this.#searchOf(request),
    });
  }

  /**
   * Returns the web search of a request. Throws 400 if the request needs one and the gateway has no search
   * backend.
   */
  #searchOf(request: ChatRequest): ChatSearch | undefined {
    const plan = webPlanOf(request);
    if (plan === undefined) return undefined;
    const { webSearch } = this.#services;
    if (webSearch === undefined) throw searchMissing(plan.param);
    const question = request[OFFLOADED_BODY]?.question ?? lastQuestion(request);
    return new ChatSearch(webSearch, plan, question);
  }

  canBeBatched({ fields: { plugins }, search, echoes }: AcceptedChat): boolean {
    const needsGateway = search !== undefined || echoes;
    return !needsGateway && (plugins ?? []).every(({ id }) => id === RESPONSE_HEALING);
  }

  preparation({ search }: AcceptedChat): Preparation | undefined {
    return search?.run;
  }

  assertScreenable({ fields }: AcceptedChat): void {
    assertScreenable(fields);
  }

  affinity({ fields }: AcceptedChat): string {
    return fields[OFFLOADED_BODY]?.head ?? conversationHead(fields);
  }

  plan(request: AcceptedChat, plan: AdmittedChat["plan"]): AdmittedChat["plan"] {
    const { fields, search } = request;
    const priced = search === undefined ? plan : pricedForTools(plan, this.#services.prices);
    const planned = planFields(fields, priced);
    return usesMiddleOut(fields) ? planTransformed(fields, request.size, planned) : planned;
  }

  bound({ fields, size, search }: AcceptedChat, terms: ModelTerms) {
    if (search === undefined) return costBound(fields, size, terms);
    const { boundBytes, boundFemto: toolsFemto } = search;
    const bound = costBound(fields, { ...size, bytes: size.bytes + boundBytes }, terms);
    return { ...bound, fixedFemto: plus(bound.fixedFemto, toolsFemto), toolsFemto };
  }

  statedLimit({ fields }: AcceptedChat): number | undefined {
    return statedOutputLimit(fields);
  }

  async call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedChat,
  ): Promise<AnsweredChat> {
    const { guard } = admitted;
    const { answer: received, echo } = await callProvider(call, candidate, admitted);
    const answered = wholeOf(received);
    const answer = guard === undefined ? answered : guard.answer(answered);
    const { hidesReasoning, healing, search } = admitted.request;
    const nowSeconds = secondsNow(this.#clock);
    const options = { requestId: call.requestId, hidesReasoning, nowSeconds };
    let completion = readAnswer(answer, options);
    const custom = translatedTools(admitted.request, candidate);
    if (custom !== undefined) completion = withCustomCalls(await completion, custom);
    if (healing !== undefined) {
      const reading = { thread: this.#services.thread, owner: call.modelId };
      completion = healed(await completion, healing, reading, call);
    }
    if (search !== undefined) await search.annotate(await completion, guard);
    return echo === undefined ? completion : { ...(await completion), echo };
  }

  usage(answer: AnsweredChat, request: AcceptedChat, terms: ModelTerms) {
    const { usage, estimatedTokens, estimatedMedia } = answer;
    const ofAnswer = usage ?? estimated(request, terms, estimatedTokens, estimatedMedia);
    return withSearch(ofAnswer, request);
  }

  answer({ body, echo }: AnsweredChat, _request: AcceptedChat, facts: AnswerFacts) {
    const set: Record<string, unknown> = {
      id: completionId(facts.requestId),
      model: facts.candidate.model.id,
      usage: usageBody(facts.usage, facts.costUsd),
    };
    if (echo !== undefined) set.debug = echo;
    return body instanceof Uint8Array
      ? withMembers(set, body)
      : JSON.stringify(Object.assign(body, set));
  }
}

/** Server-sent events with one chunk each. The last event is `[DONE]`. */
class ChatStreamForm implements StreamForm<AcceptedChat> {
  readonly contentType = "text/event-stream; charset=utf-8";
  readonly keepalive = ": keepalive\n\n";
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  choices({ fields }: AcceptedChat): number {
    return fields.n ?? 1;
  }

  async open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedChat,
    output: ByteBuffer,
  ): Promise<OpenedStream> {
    const nowSeconds = secondsNow(this.#clock);
    const { answer: received, echo } = await callProvider(call, candidate, admitted);
    const answer = streamOf(received);
    const { hidesReasoning, search } = admitted.request;
    const id = completionId(call.requestId);
    const model = candidate.model.id;
    const customTools = translatedTools(admitted.request, candidate);
    const options = { id, model, hidesReasoning, nowSeconds, customTools };
    if (echo) output.add(frameOf(echoChunk({ id, model, created: nowSeconds }, echo)));
    const { guard } = admitted;
    const annotated = search !== undefined && !hasMediaOutput(admitted.request);
    if (guard?.screensOutput === true) {
      return openTypedAnswer(answer, options, output, (events) =>
        guard.events(annotated ? search.annotatedEvents(events) : events),
      );
    }
    if (annotated) {
      return openTypedAnswer(answer, options, output, (events) => search.annotatedEvents(events));
    }
    return customTools === undefined
      ? openAnswer(answer, options, output)
      : openTypedAnswer(answer, options, output, (events) => events);
  }

  usage(answer: StreamedAnswer, request: AcceptedChat, terms: ModelTerms) {
    const { usage, outputTokens, mediaTokens } = answer;
    const ofAnswer = usage ?? estimated(request, terms, outputTokens, mediaTokens);
    return withSearch(ofAnswer, request);
  }

  ending({ created }: StreamedAnswer, request: AcceptedChat, facts: AnswerFacts): string {
    const done = "data: [DONE]\n\n";
    const { requestId, candidate, usage, costUsd } = facts;
    const answer = { id: completionId(requestId), model: candidate.model.id, created };
    // The text of an answer with media is not searched for links.
    const sources = hasMediaOutput(request) ? (request.search?.annotationsOf("") ?? []) : [];
    const annotations = sources.length === 0 ? "" : frameOf(annotationsChunk(answer, sources));
    if (!wantsUsage(request.fields)) return annotations + done;
    return annotations + frameOf(usageChunk(answer, usage, costUsd)) + done;
  }

  failure(error: GatewayError, requestId: string): string {
    return frameOf(errorEnvelope(error, requestId));
  }
}

/** Number of times that a prompt is shortened further, if the provider counts more tokens than the estimate. */
const MAX_SHORTER_TRIES = 2;

interface EchoedAnswer {
  readonly answer: ChatAnswer;
  /** The request body that the provider received. Undefined if the request does not ask for it. */
  readonly echo: DebugEcho | undefined;
}

/**
 * Calls the candidate. With the transform "middle-out", calls it again with a shorter prompt if the provider
 * rejects the prompt as too long.
 */
async function callProvider(
  call: ProviderCall,
  candidate: Candidate,
  admitted: AdmittedChat,
): Promise<EchoedAnswer> {
  const { request, plan } = admitted;
  const limit = sentLimit(admitted, candidate);
  const addition = request.search?.addition;
  const customAsFunctions = translatedTools(request, candidate) !== undefined;
  for (let tries = 0, promptShare = 1; ; tries++) {
    const shape = { addition, customAsFunctions, promptShare };
    const plain = providerBody(request.fields, candidate, limit, plan.unsupported, shape);
    const body = request.echoes ? new EchoedBody(plain) : plain;
    const { stream } = call;
    try {
      const answer = await candidate.provider.chat!(providerRequest(call, { stream, body }));
      return { answer, echo: body instanceof EchoedBody ? body.echo : undefined };
    } catch (error) {
      const isTooLong = error instanceof ProviderFailure && error.isTooLong;
      const mayCut = usesMiddleOut(request.fields) && tries < MAX_SHORTER_TRIES;
      if (!isTooLong || !mayCut) throw error;
      promptShare *= shareByProvider(error.message);
      plan.transformed?.add(candidate);
    }
  }
}

/**
 * Returns the names of the custom tools that the candidate receives as functions, or undefined if there are
 * none.
 */
function translatedTools(
  { customTools, search }: AcceptedChat,
  candidate: Candidate,
): readonly string[] | undefined {
  if (customTools.length === 0) return undefined;
  // Citations can be added only to answers without custom tool calls.
  return search === undefined && takesCustomTools(candidate) ? undefined : customTools;
}

/** Returns the estimated usage of an answer whose provider reported none. */
function estimated(
  { fields, size, search }: AcceptedChat,
  terms: ModelTerms,
  outputTokens: number,
  media?: MediaTokens,
): Usage {
  const addition = search?.addition ?? "";
  const { transformedTokens, bytes } = size;
  const contextLength =
    promptLimit(fields, transformedTokens, terms, addition) ?? terms.contextLength;
  const sent = { ...size, bytes: bytes + Buffer.byteLength(addition) };
  return { ...countedUsage(sent, { contextLength }, outputTokens), ...media };
}

function withSearch(usage: Usage, { search }: AcceptedChat): Usage {
  return search === undefined ? usage : { ...usage, ...search.quantities };
}

/** Returns true if the answer can contain audio or images. */
function hasMediaOutput({ fields: { modalities } }: AcceptedChat): boolean {
  return modalities?.some((kind) => kind !== "text") === true;
}

function wantsUsage({ stream_options: options, usage }: ChatRequest): boolean {
  return options?.include_usage === true || usage?.include === true;
}

function frameOf(value: unknown): string {
  return `data: ${latin1OfText(JSON.stringify(value))}\n\n`;
}

/** Returns the route POST /v1/chat/completions (spec 4.5, 6.2). */
export function chatRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
  services: ChatServices,
): RouteDefinition {
  const endpoint = new ChatEndpoint(dependencies.calls.clock, services);
  const description: Parameters<typeof paidRoute>[1] = {
    path: "/v1/chat/completions",
    tag: "Chat",
    operationId: "chat.completions.create",
    summary: "Create chat completion",
    access: { kind: "model", scope: "chat:completions" },
    body: chatCompletionBody,
    allowsUnknownFields: true,
    async readLongBody(bytes, owner, signal) {
      const reading = { thread: services.thread, owner };
      const whole = await longBodyWithTexts(services.documents, reading, bytes, signal);
      return readLongChat(longBodies, whole, owner, signal);
    },
    responses: {
      200: {
        description: "A chat completion, or a stream of chunks if `stream` is true.",
        schema: chatCompletion,
        eventSchema: chatCompletionChunk,
      },
    },
  };
  const preset = preparePreset(dependencies.definitions, filledChat, checkChat);
  const prepare = prepareDocuments(services.documents, preset);
  return paidRoute(new PaidCall(dependencies, endpoint), description, prepare);
}
