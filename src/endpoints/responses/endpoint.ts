import { type ProviderCall, sentLimit } from "../../calls/call.ts";
import {
  type AnswerFacts,
  assertRecordable,
  type OpenedStream,
  type PaidEndpoint,
  type StreamForm,
} from "../../calls/endpoint.ts";
import type { Candidate, RoutePlan } from "../../calls/routing/plan-route.ts";
import { PaidCall, type PaidCallDependencies } from "../../calls/run-call.ts";
import type { RouteDefinition } from "../../http/route.ts";
import type { ModelTerms } from "../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../lib/clock.ts";
import type { GatewayError } from "../../lib/errors.ts";
import type { GrowingBytes } from "../../lib/growing-bytes.ts";
import { SharedBytesWriter } from "../../lib/shared-bytes.ts";
import type { ChatAnswer } from "../../providers/interface.ts";
import type { StreamedAnswer } from "../../providers/streamed-answer.ts";
import { type AnswerThread, readAnswerText } from "../../providers/thread-work.ts";
import { notStreamed, streamedUnasked } from "../../providers/transport/call-failures.ts";
import { choiceOf, RawStreamEvents } from "../../providers/typed-answers.ts";
import { costBound, countedUsage } from "../chat-completions/cost-bound.ts";
import { providerBody } from "../chat-completions/provider-body.ts";
import { conversationHead, LONG_BODY, statedOutputLimit } from "../chat-completions/request.ts";
import type { LongBodies } from "../long-bodies.ts";
import { paidRoute } from "../paid-route.ts";
import { type AcceptedResponse, type AdmittedResponse, acceptResponse } from "./accepted.ts";
import { ResponseKeeping } from "./keep-response.ts";
import { type LongResponses, readLongResponses } from "./long-responses.ts";
import type { OutputOptions } from "./output-items.ts";
import { planResponses } from "./plan-responses.ts";
import { type ShortTurn, TurnPreparation } from "./prepared-turn.ts";
import { RESPONSES_ROUTE } from "./request.ts";
import { endOf, nameOfResponse, responseHead, usageOf } from "./response-json.ts";
import { errorFrame, ResponseRenderer } from "./response-renderer.ts";
import type { ResponseStore } from "./response-store.ts";
import { responseAnswer, responseEvent, responsesBody } from "./schema.ts";
import { longOutput, longTypedOutput, outputOf, type WholeOutput } from "./whole-response.ts";

/** Responses (spec 4.6) for every chat model. */
export class ResponsesEndpoint implements PaidEndpoint<AcceptedResponse, WholeOutput> {
  readonly route = RESPONSES_ROUTE;
  readonly categories = ["chat", "code"] as const;
  readonly title = "Response";
  readonly capability = "chat";
  readonly stream: StreamForm<AcceptedResponse>;
  readonly #clock: Clock;
  readonly #thread: AnswerThread;
  readonly #keeping: ResponseKeeping;

  /** @param thread reads long answers */
  constructor(clock: Clock, thread: AnswerThread, keeping: ResponseKeeping) {
    this.#clock = clock;
    this.#thread = thread;
    this.#keeping = keeping;
    this.stream = new ResponseStreamForm(clock, keeping);
  }

  accept(body: unknown): AcceptedResponse {
    const accepted = acceptResponse(body as ShortTurn | LongResponses, secondsNow(this.#clock));
    assertRecordable(accepted.fields);
    return accepted;
  }

  affinity({ fields }: AcceptedResponse): string {
    return fields[LONG_BODY]?.head ?? conversationHead(fields);
  }

  plan({ facts }: AcceptedResponse, plan: RoutePlan): RoutePlan {
    return planResponses(facts, plan);
  }

  bound({ fields, facts }: AcceptedResponse, terms: ModelTerms) {
    return costBound(fields, facts.size, terms);
  }

  statedLimit({ fields }: AcceptedResponse): number | undefined {
    return statedOutputLimit(fields);
  }

  async call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedResponse,
  ): Promise<WholeOutput> {
    const output = await this.#call(call, candidate, admitted);
    return { ...output, completedAt: secondsNow(this.#clock) };
  }

  async #call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedResponse,
  ): Promise<WholeOutput> {
    const answer = await chat(call, candidate, admitted);
    const options = outputOptions(admitted);
    if (answer.kind === "typed-completion") {
      return outputOf(answer.choices[0]!, answer.usage, options);
    }
    if (answer.kind === "long-typed-completion") return answer.render(longTypedOutput, options);
    if (answer.kind !== "completion") throw streamedUnasked();
    const { body, usage, estimatedTokens } = await answer.read({
      requestId: call.requestId,
      hidesReasoning: false,
      nowSeconds: secondsNow(this.#clock),
    });
    if (!(body instanceof Uint8Array)) {
      return { ...outputOf(choiceOf(body), usage, options), estimatedTokens };
    }
    const writer = new SharedBytesWriter();
    writer.push(body);
    const reading = { thread: this.#thread, owner: `provider ${candidate.providerId}` };
    const output = await readAnswerText(reading, longOutput, writer.end(), options, call);
    return { ...output, usage, estimatedTokens };
  }

  usage({ usage, estimatedTokens }: WholeOutput, request: AcceptedResponse, terms: ModelTerms) {
    return usage ?? countedUsage(request.facts.size, terms, estimatedTokens);
  }

  keep(output: WholeOutput, admitted: AdmittedResponse, facts: AnswerFacts) {
    const head = headOf(output, admitted.request, facts);
    return this.#keeping.keep(admitted, { head, output: output.body });
  }

  answer(output: WholeOutput, request: AcceptedResponse, facts: AnswerFacts) {
    return withOutputOf(headOf(output, request, facts), output.body);
  }
}

function headOf(
  { finish, completedAt = 0 }: WholeOutput,
  { facts, createdAt }: AcceptedResponse,
  { requestId, candidate, usage, costUsd }: AnswerFacts,
): string {
  const end = endOf(finish);
  return responseHead({
    ...end,
    name: nameOfResponse(requestId),
    createdAt,
    completedAt: end.status === "completed" ? completedAt : null,
    model: candidate.model.id,
    usage: usageOf(usage, costUsd),
    echo: facts.echo,
  });
}

function withOutputOf(head: string, output: string | Uint8Array): string | Uint8Array {
  const before = `${head.slice(0, -1)},"output":[`;
  if (typeof output === "string") return `${before}${output}]}`;
  return Buffer.concat([Buffer.from(before), output, Buffer.from("]}")]);
}

/** Server-sent events with names, behind which `[DONE]` is the last. */
class ResponseStreamForm implements StreamForm<AcceptedResponse> {
  readonly contentType = "text/event-stream; charset=utf-8";
  readonly keepalive = ": keepalive\n\n";
  readonly #clock: Clock;
  readonly #keeping: ResponseKeeping;

  constructor(clock: Clock, keeping: ResponseKeeping) {
    this.#clock = clock;
    this.#keeping = keeping;
  }

  choices(): number {
    return 1;
  }

  async open(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedResponse,
    output: GrowingBytes,
  ): Promise<OpenedStream> {
    const answer = await chat(call, candidate, admitted);
    this.#keeping.noteAnswered(admitted);
    const { createdAt, facts } = admitted.request;
    const common = { model: candidate.model.id, nowSeconds: createdAt };
    const { echo } = facts;
    const renderer = new ResponseRenderer({ ...outputOptions(admitted), ...common, echo }, output);
    if (answer.kind === "events") return { reader: answer.reader(), answer: renderer };
    if (answer.kind !== "stream") throw notStreamed();
    const options = { ...common, id: call.requestId, hidesReasoning: false };
    return { reader: new RawStreamEvents(answer, options), answer: renderer };
  }

  usage({ usage, outputTokens }: StreamedAnswer, request: AcceptedResponse, terms: ModelTerms) {
    return usage ?? countedUsage(request.facts.size, terms, outputTokens);
  }

  keep(answer: StreamedAnswer, admitted: AdmittedResponse, facts: AnswerFacts) {
    return this.#keeping.keep(admitted, this.#whole(answer, facts));
  }

  ending(answer: StreamedAnswer, _request: AcceptedResponse, facts: AnswerFacts): string {
    return (answer as ResponseRenderer).closing(this.#whole(answer, facts));
  }

  #whole(answer: StreamedAnswer, { usage, costUsd }: AnswerFacts) {
    return (answer as ResponseRenderer).whole(usage, costUsd, secondsNow(this.#clock));
  }

  failure(error: GatewayError, requestId: string, answer: StreamedAnswer | undefined): string {
    return answer instanceof ResponseRenderer
      ? answer.failing(error, requestId)
      : errorFrame(error, requestId, 0);
  }
}

function outputOptions({ requestId, request }: AdmittedResponse): OutputOptions {
  const { customTools, showsSummary } = request.facts;
  return { name: nameOfResponse(requestId), showsSummary, customTools };
}

function chat(
  call: ProviderCall,
  candidate: Candidate,
  admitted: AdmittedResponse,
): Promise<ChatAnswer> {
  const limit = sentLimit(admitted, candidate);
  call.body = providerBody(admitted.request.fields, candidate, limit, admitted.plan.lacked);
  return candidate.provider.chat!(call);
}

/** POST /v1/responses. */
export function responsesRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
  thread: AnswerThread,
  store: ResponseStore,
): RouteDefinition {
  const { clock } = dependencies.calls;
  const endpoint = new ResponsesEndpoint(clock, thread, new ResponseKeeping(store));
  const { prepare } = new TurnPreparation({ ...dependencies, store, longBodies });
  const description: Parameters<typeof paidRoute>[1] = {
    path: "/v1/responses",
    tag: "Responses",
    summary: "Create a response, streamed or not, with any chat model",
    access: { kind: "model", scope: "responses" },
    body: responsesBody,
    allowsUnknownFields: true,
    readLongBody: (bytes, owner, signal) => readLongResponses(longBodies, bytes, owner, signal),
    responses: {
      200: {
        description: "A response, or with stream true a stream of its events",
        schema: responseAnswer,
        eventSchema: responseEvent,
      },
    },
  };
  const call = new PaidCall(dependencies, endpoint);
  return paidRoute(call, description, prepare);
}
