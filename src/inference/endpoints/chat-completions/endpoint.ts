import { type AdmittedCall, type ProviderCall, sentLimit } from "../../call/call.ts";
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
import { errorEnvelope } from "../../../http/error-response.ts";
import type { RouteDefinition } from "../../../http/route.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import type { GatewayError } from "../../../lib/errors.ts";
import { latin1OfText } from "../../../lib/event-splitter.ts";
import { plus } from "../../../lib/exact-integer.ts";
import type { GrowingBytes } from "../../../lib/growing-bytes.ts";
import { withMembers } from "../../../lib/json.ts";
import type { Usage } from "../../../lib/usage.ts";
import {
  type ChatAnswer,
  type ClientCompletion,
  ProviderFailure,
} from "../../../providers/interface.ts";
import type { MediaTokens, StreamedAnswer } from "../../../providers/streamed-answer.ts";
import type { AnswerReading } from "../../../providers/thread-work.ts";
import { type HostedServices, pricedForTools } from "../../tools/hosted-services.ts";
import { searchMissing } from "../../tools/web-search/search-backend.ts";
import { preparePreset } from "../fill-preset.ts";
import type { LongBodies } from "../long-bodies.ts";
import { paidRoute } from "../paid-route.ts";
import { ChatSearch } from "./chat-search.ts";
import { costBound, countedUsage, type PromptSize, promptSize } from "./cost-bound.ts";
import { customToolsOf, takesCustomTools, withCustomCalls } from "./custom-tools.ts";
import { asksEcho, type DebugEcho, EchoedBody } from "./debug-echo.ts";
import { type DocumentTexts, longBodyWithTexts, prepareDocuments } from "./file-parser.ts";
import { keptChat } from "./kept-answer.ts";
import { readLongChat } from "./long-chat.ts";
import { asksMiddleOut, planTransformed, promptLimit, shareByProvider } from "./middle-out.ts";
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
  LONG_BODY,
  statedOutputLimit,
} from "./request.ts";
import { assertScreenable, assertSupported, assertWellFormed } from "./request-checks.ts";
import { IMAGE_OUTPUT, planFields } from "./request-fields.ts";
import { type HealingPlan, healed, healingPlanOf, RESPONSE_HEALING } from "./response-healing.ts";
import { chatCompletion, chatCompletionBody, chatCompletionChunk } from "./schema.ts";
import { lastQuestion, webPlanOf, withoutSuffix } from "./web-plugin.ts";

/** What the gateway adds to the answer of a chat, or makes of it. */
interface ChatExtras {
  readonly echoes?: boolean;
  readonly healing?: HealingPlan | undefined;
  readonly search?: ChatSearch | undefined;
}

/** A chat completion as it was accepted. */
export class AcceptedChat implements AcceptedRequest {
  readonly fields: ChatRequest;
  /** Set where a thread has read the body. */
  readonly bodyHash: string | undefined;
  readonly hidesReasoning: boolean;
  /** The answer is to show what was sent to the provider. */
  readonly echoes: boolean;
  readonly healing: HealingPlan | undefined;
  /** Made before a provider is called; undefined where none is asked for. */
  readonly search: ChatSearch | undefined;
  readonly customTools: readonly string[];
  #size: PromptSize | undefined;

  constructor(request: ChatRequest, { echoes = false, healing, search }: ChatExtras = {}) {
    this.fields = request;
    this.echoes = echoes;
    this.healing = healing;
    this.search = search;
    this.customTools = customToolsOf(request);
    this.bodyHash = request[LONG_BODY]?.hash;
    this.hidesReasoning =
      request.include_reasoning === false || request.reasoning?.exclude === true;
  }

  /** Measured when it is first needed: a request that is refused before costs nothing. */
  get size(): PromptSize {
    this.#size ??= promptSize(this.fields);
    return this.#size;
  }
}

interface AnsweredChat extends ClientCompletion {
  /** Of what was sent to the provider, where it is asked for. */
  readonly echo?: DebugEcho;
}

interface ChatServices extends Pick<HostedServices, "prices" | "webSearch"> {
  /** Answers may show what was sent to the provider. */
  readonly allowsEcho?: boolean;
  /** Repairs answers; without one the event loop does. */
  readonly thread?: AnswerReading["thread"];
  readonly documents?: DocumentTexts | undefined;
}

export type AdmittedChat = AdmittedCall<AcceptedChat>;

/** Chat completions (spec 4.5). */
export class ChatEndpoint implements PaidEndpoint<AcceptedChat, AnsweredChat> {
  readonly route = CHAT_ROUTE;
  readonly categories = ["chat", "code"] as const;
  readonly alsoServes = IMAGE_OUTPUT;
  readonly title = "Chat completion";
  readonly capability = "chat";
  readonly kept = keptChat;
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
    // The thread that read a long body has checked the whole of it.
    if (request[LONG_BODY] === undefined) {
      assertWellFormed(request);
      assertRecordable(request);
    }
    assertSupported(request);
    return new AcceptedChat(request, {
      echoes: asksEcho(request, this.#services.allowsEcho === true),
      healing: healingPlanOf(request),
      search: this.#searchOf(request),
    });
  }

  /** Throws 400 where one is asked for, and the gateway has none. */
  #searchOf(request: ChatRequest): ChatSearch | undefined {
    const plan = webPlanOf(request);
    if (plan === undefined) return undefined;
    const { webSearch } = this.#services;
    if (webSearch === undefined) throw searchMissing(plan.param);
    const question = request[LONG_BODY]?.question ?? lastQuestion(request);
    return new ChatSearch(webSearch, plan, question);
  }

  standsInBatches({ fields: { plugins }, search, echoes }: AcceptedChat): boolean {
    const isOwn = search !== undefined || echoes;
    return !isOwn && (plugins ?? []).every(({ id }) => id === RESPONSE_HEALING);
  }

  preparation({ search }: AcceptedChat): Preparation | undefined {
    return search?.run;
  }

  assertScreenable({ fields }: AcceptedChat): void {
    assertScreenable(fields);
  }

  affinity({ fields }: AcceptedChat): string {
    return fields[LONG_BODY]?.head ?? conversationHead(fields);
  }

  plan(request: AcceptedChat, plan: AdmittedChat["plan"]): AdmittedChat["plan"] {
    const { fields, search } = request;
    const priced = search === undefined ? plan : pricedForTools(plan, this.#services.prices);
    const planned = planFields(fields, priced);
    return asksMiddleOut(fields) ? planTransformed(fields, request.size, planned) : planned;
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
    const given = await callProvider(call, candidate, admitted);
    const answer = guard === undefined ? given : await guard.answer(given);
    const { hidesReasoning, healing, search } = admitted.request;
    const nowSeconds = secondsNow(this.#clock);
    const options = { requestId: call.requestId, hidesReasoning, nowSeconds };
    const echo = echoOf(call);
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

/** Server-sent events, each with a chunk, the last one with `[DONE]`. */
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
    output: GrowingBytes,
  ): Promise<OpenedStream> {
    const nowSeconds = secondsNow(this.#clock);
    const answer = await callProvider(call, candidate, admitted);
    const { hidesReasoning, search } = admitted.request;
    const id = completionId(call.requestId);
    const model = candidate.model.id;
    const customTools = translatedTools(admitted.request, candidate);
    const options = { id, model, hidesReasoning, nowSeconds, customTools };
    const echo = echoOf(call);
    if (echo) output.add(frameOf(echoChunk({ id, model, created: nowSeconds }, echo)));
    const { guard } = admitted;
    const annotated = search !== undefined && !bringsMedia(admitted.request);
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
    // Its text is not looked at.
    const sources = bringsMedia(request) ? (request.search?.annotationsOf("") ?? []) : [];
    const annotations = sources.length === 0 ? "" : frameOf(annotationsChunk(answer, sources));
    if (!asksForUsage(request.fields)) return annotations + done;
    return annotations + frameOf(usageChunk(answer, usage, costUsd)) + done;
  }

  failure(error: GatewayError, requestId: string): string {
    return frameOf(errorEnvelope(error, requestId));
  }
}

/** Of a prompt that a provider finds too long by its own count, although it was cut by an estimate. */
const MAX_SHORTER_TRIES = 2;

/** Calls the candidate; with the transform middle-out again with less of the prompt if that is too long for it. */
async function callProvider(
  call: ProviderCall,
  candidate: Candidate,
  admitted: AdmittedChat,
): Promise<ChatAnswer> {
  const { request, plan } = admitted;
  const limit = sentLimit(admitted, candidate);
  const addition = request.search?.addition;
  const customAsFunctions = translatedTools(request, candidate) !== undefined;
  for (let tries = 0, promptShare = 1; ; tries++) {
    const shape = { addition, customAsFunctions, promptShare };
    const body = providerBody(request.fields, candidate, limit, plan.lacked, shape);
    call.body = request.echoes ? new EchoedBody(body) : body;
    try {
      return await candidate.provider.chat!(call);
    } catch (error) {
      const isTooLong = error instanceof ProviderFailure && error.isTooLong;
      const mayCut = asksMiddleOut(request.fields) && tries < MAX_SHORTER_TRIES;
      if (!isTooLong || !mayCut) throw error;
      promptShare *= shareByProvider(error.message);
      plan.transformed?.add(candidate);
    }
  }
}

/** Names of the custom tools for which the candidate gets functions; undefined if there are none. */
function translatedTools(
  { customTools, search }: AcceptedChat,
  candidate: Candidate,
): readonly string[] | undefined {
  if (customTools.length === 0) return undefined;
  // Citations are added to answers in a form without custom tools.
  return search === undefined && takesCustomTools(candidate) ? undefined : customTools;
}

function echoOf({ body }: ProviderCall): DebugEcho | undefined {
  return body instanceof EchoedBody ? body.echo : undefined;
}

/** Usage of an answer whose provider reported none. */
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

/** Whether the answer may hold sound or images. */
function bringsMedia({ fields: { modalities } }: AcceptedChat): boolean {
  return modalities?.some((kind) => kind !== "text") === true;
}

function asksForUsage({ stream_options: options, usage }: ChatRequest): boolean {
  return options?.include_usage === true || usage?.include === true;
}

function frameOf(value: unknown): string {
  return `data: ${latin1OfText(JSON.stringify(value))}\n\n`;
}

/** POST /v1/chat/completions (spec 4.5, 6.2). */
export function chatRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
  services: ChatServices,
): RouteDefinition {
  const endpoint = new ChatEndpoint(dependencies.calls.clock, services);
  const description: Parameters<typeof paidRoute>[1] = {
    path: "/v1/chat/completions",
    tag: "Chat",
    summary: "Create a chat completion, streamed or not",
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
        description: "A chat completion, or with stream true a stream of its chunks",
        schema: chatCompletion,
        eventSchema: chatCompletionChunk,
      },
    },
  };
  const preset = preparePreset(dependencies.definitions, filledChat, checkChat);
  const prepare = prepareDocuments(services.documents, preset);
  return paidRoute(new PaidCall(dependencies, endpoint), description, prepare);
}
