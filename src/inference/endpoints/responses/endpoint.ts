import type { RouteDefinition } from "../../../http/route.ts";
import type { ModelTerms } from "../../../lib/catalogue-model.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import { GatewayError } from "../../../lib/errors.ts";
import { wholeOf } from "../../../providers/transport/call-failures.ts";
import { type ProviderCall, sentLimit } from "../../call/call.ts";
import {
  type AnswerFacts,
  assertRecordable,
  type PaidEndpoint,
  type StreamForm,
  type WholeAnswerSteps,
} from "../../call/endpoint.ts";
import type { Candidate, RoutePlan } from "../../call/routing/plan-route.ts";
import { PaidCall, type PaidCallDependencies } from "../../call/run-call.ts";
import { type HostedServices, pricedForTools } from "../../tools/hosted-services.ts";
import { costBound, countedUsage } from "../chat-completions/cost-bound.ts";
import {
  conversationHead,
  OFFLOADED_BODY,
  statedOutputLimit,
} from "../chat-completions/request.ts";
import { assertScreenable } from "../chat-completions/request-checks.ts";
import type { LongBodies } from "../long-bodies.ts";
import { type BackgroundStart, type Prepare, paidRoute } from "../paid-route.ts";
import { type AcceptedResponse, type AdmittedResponse, acceptResponse } from "./accepted.ts";
import { ResponsesCacheFormat } from "./cache-format.ts";
import { HostedTools } from "./hosted-tools.ts";
import { LongResponses, readLongResponses } from "./long-responses.ts";
import { planResponses } from "./plan-responses.ts";
import { type ShortTurn, TurnPreparation } from "./prepared-turn.ts";
import { boundWithRuns, providerToolUse, receivesItems } from "./provider-tools.ts";
import { RESPONSES_ROUTE } from "./request.ts";
import type { ResponsesFacts } from "./request-facts.ts";
import { endOf, nameOfResponse, responseHead, usageOf } from "./response-json.ts";
import type { ResponseStore } from "./response-store.ts";
import { ResponseStoreWriter } from "./response-store-writer.ts";
import {
  BackgroundStreamForm,
  chat,
  outputOptions,
  ResponseStreamForm,
} from "./response-stream.ts";
import { responseAnswer, responseEvent, responsesBody } from "./schema.ts";
import { outputOfLoop } from "./whole-loop.ts";
import { outputRender, type WholeOutput } from "./whole-response.ts";

export interface ResponsesServices {
  readonly clock: Clock;
  readonly storeWriter: ResponseStoreWriter;
  readonly hosted: HostedServices;
}

/** The endpoint for responses (spec 4.6), for every chat model. */
export class ResponsesEndpoint implements PaidEndpoint<AcceptedResponse, WholeOutput> {
  readonly route: string = RESPONSES_ROUTE;
  readonly categories = ["chat", "code"] as const;
  readonly title: string = "Response";
  readonly capability = "chat";
  readonly cacheFormat: ResponsesCacheFormat;
  readonly stream: (request: AcceptedResponse) => StreamForm<AcceptedResponse>;
  readonly #clock: Clock;
  readonly #storeWriter: ResponseStoreWriter;
  readonly #hosted: HostedServices;

  constructor({ clock, storeWriter, hosted }: ResponsesServices) {
    this.#clock = clock;
    this.#storeWriter = storeWriter;
    this.#hosted = hosted;
    this.cacheFormat = new ResponsesCacheFormat(storeWriter);
    const streamed = new ResponseStreamForm(clock, storeWriter);
    this.stream = ({ background }) =>
      background === undefined
        ? streamed
        : new BackgroundStreamForm(clock, storeWriter, background);
  }

  accept(body: unknown): AcceptedResponse {
    const prepared = body as ShortTurn | LongResponses;
    const accepted = acceptResponse(prepared, secondsNow(this.#clock), this.#hosted.registry);
    assertRecordable(accepted.fields);
    return accepted;
  }

  assertScreenable({ fields }: AcceptedResponse): void {
    assertScreenable(fields);
  }

  affinity({ fields }: AcceptedResponse): string {
    return fields[OFFLOADED_BODY]?.head ?? conversationHead(fields);
  }

  plan({ facts, hosted }: AcceptedResponse, plan: RoutePlan): RoutePlan {
    if (hosted === undefined) return this.#planOfProviders(facts, plan);
    const priced = pricedForTools(plan, this.#hosted.prices);
    return planResponses(facts, priced, hosted.initial.definitions);
  }

  /**
   * Plans the request for candidates that run its tools themselves. If there are none, throws the error of
   * the gateway's missing tool setting.
   */
  #planOfProviders(facts: ResponsesFacts, plan: RoutePlan): RoutePlan {
    try {
      return planResponses(facts, plan);
    } catch (error) {
      if (facts.hosted !== undefined) new HostedTools(facts.hosted, this.#hosted.registry);
      throw error;
    }
  }

  bound({ fields, size, facts }: AcceptedResponse, terms: ModelTerms, candidate?: Candidate) {
    const isRunByProvider = candidate === undefined || receivesItems(facts, candidate);
    return isRunByProvider ? boundWithRuns(facts, size, terms) : costBound(fields, size, terms);
  }

  takesSteps({ hosted }: AcceptedResponse): boolean {
    return hosted !== undefined;
  }

  failureOf({ loop }: WholeOutput): unknown {
    return loop?.failure;
  }

  statedLimit({ fields }: AcceptedResponse): number | undefined {
    return statedOutputLimit(fields);
  }

  async call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedResponse,
    steps?: WholeAnswerSteps,
  ): Promise<WholeOutput> {
    const { hosted } = admitted.request;
    const output =
      hosted === undefined
        ? await this.#call(call, candidate, admitted)
        : await outputOfLoop({ call, candidate, admitted, steps: steps! }, hosted);
    return { ...output, completedAt: secondsNow(this.#clock) };
  }

  async #call(
    call: ProviderCall,
    candidate: Candidate,
    admitted: AdmittedResponse,
  ): Promise<WholeOutput> {
    const limit = sentLimit(admitted, candidate);
    const answered = wholeOf(await chat(call, candidate, admitted, limit));
    const answer = admitted.guard?.answer(answered) ?? answered;
    return answer.render(outputRender, outputOptions(admitted));
  }

  usage({ usage, estimatedTokens }: WholeOutput, request: AcceptedResponse, terms: ModelTerms) {
    return usage ?? countedUsage(request.facts.size, terms, estimatedTokens);
  }

  storeAnswer(output: WholeOutput, admitted: AdmittedResponse, facts: AnswerFacts) {
    const head = headOf(output, admitted.request, facts);
    return this.#storeWriter.storeAnswer(admitted, { head, output: output.body });
  }

  answer(output: WholeOutput, request: AcceptedResponse, facts: AnswerFacts) {
    const { error } = facts;
    // Earlier steps are charged, so the answer shows them. The response has failed, but the request has not.
    if (error !== undefined)
      return output.loop!.renderer.stopped("failed", { error, charge: facts });
    return withOutputOf(headOf(output, request, facts), output.body);
  }
}

function headOf(
  { finish, loop, completedAt = 0 }: WholeOutput,
  { facts, createdAt }: AcceptedResponse,
  { requestId, candidate, usage, costUsd }: AnswerFacts,
): string {
  const end = endOf(finish, loop?.limit);
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

export type ResponsesCall = PaidCall<AcceptedResponse, WholeOutput>;

/**
 * Returns the route POST /v1/responses.
 *
 * @param inBackground answers requests for background responses
 */
export function responsesRoute(
  dependencies: PaidCallDependencies,
  longBodies: LongBodies,
  store: ResponseStore,
  hosted: HostedServices,
  inBackground: (
    call: ResponsesCall,
    storeWriter: ResponseStoreWriter,
  ) => BackgroundStart<AcceptedResponse>,
): RouteDefinition {
  const { clock } = dependencies.calls;
  const storeWriter = new ResponseStoreWriter(store);
  const endpoint = new ResponsesEndpoint({ clock, storeWriter, hosted });
  const { prepare } = new TurnPreparation({ ...dependencies, store, longBodies });
  const description: Parameters<typeof paidRoute>[1] = {
    path: "/v1/responses",
    tag: "Responses",
    operationId: "responses.create",
    summary: "Create response",
    access: { kind: "model", scope: "responses" },
    body: responsesBody,
    allowsUnknownFields: true,
    readLongBody: (bytes, owner, signal) => readLongResponses(longBodies, bytes, owner, signal),
    responses: {
      200: {
        description: "A response, or a stream of events if `stream` is true.",
        schema: responseAnswer,
        eventSchema: responseEvent,
      },
    },
  };
  const call = new PaidCall(dependencies, endpoint);
  const gated = withComputerGate(prepare, hosted);
  return paidRoute(call, description, gated, inBackground(call, storeWriter));
}

/** Rejects tools that operate a computer, unless the operator allows them to the organization (spec 4.6). */
function withComputerGate(
  prepare: TurnPreparation["prepare"],
  { mayUseComputer }: HostedServices,
): Prepare {
  return async (context, admit) => {
    const prepared = await prepare(context, admit);
    const param = computerToolIn(prepared.body as ShortTurn | LongResponses);
    if (param === undefined || (await mayUseComputer(context.caller.key.organizationId))) {
      return prepared;
    }
    const message = "The organization is not allowed to use tools that operate a computer.";
    throw new GatewayError("tool_not_allowed", message, { param });
  };
}

function computerToolIn(prepared: ShortTurn | LongResponses): string | undefined {
  return prepared instanceof LongResponses
    ? prepared.facts.ofProvider?.computer
    : providerToolUse(prepared.turn.body, false)?.computer;
}
