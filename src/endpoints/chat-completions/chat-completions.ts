import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import { type RateHeaders, takeRate } from "../../calls/admit.ts";
import { bodyHash, idempotencyKeyOf } from "../../calls/idempotency/idempotency.ts";
import {
  assertModelsAllowed,
  coveredTerms,
  type RoutePlan,
  type RoutePreferences,
} from "../../calls/routing/plan-route.ts";
import { RoutePlans } from "../../calls/routing/route-plans.ts";
import type { TunedModels } from "../../calls/routing/tuned-models.ts";
import type { RateWindows } from "../../cluster/interface.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { Hold } from "../../money/interface.ts";
import { type FeeTerms, feeOfTerms } from "../../money/plans.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { Provider } from "../../providers/interface.ts";
import { type CompleteChatDependencies, completeChat } from "./complete-chat.ts";
import { costBound, type PromptSize, promptSize } from "./cost-bound.ts";
import type { AdmittedChat, ArrivedChat, ChatContext, ChatOutcome } from "./prepared-chat.ts";
import { type ChatRequest, statedOutputLimit } from "./request.ts";
import { planFields } from "./request-fields.ts";
import { routePreferences } from "./route-preferences.ts";
import { type StreamChatDependencies, streamChat } from "./stream-chat.ts";
import { assertSupported } from "./unsupported-fields.ts";

export interface ChatCompletionsDependencies
  extends StreamChatDependencies,
    CompleteChatDependencies {
  readonly tunedModels: TunedModels;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly rates: RateWindows;
  readonly organizations: OrganizationActors;
}

const ROUTE = "POST /v1/chat/completions";
/** The provider that needs no key of anyone's. */
const KEYLESS_PROVIDER = "sandbox";

/** Chat completions (spec 4.5): route, limit, hold, call, meter, settle, answer. */
export class ChatCompletions {
  readonly #dependencies: ChatCompletionsDependencies;
  readonly #plans: RoutePlans;

  constructor(dependencies: ChatCompletionsDependencies) {
    const { tunedModels, providers } = dependencies;
    this.#dependencies = dependencies;
    this.#plans = new RoutePlans({
      models: tunedModels.shared,
      providers,
      categories: ["chat", "code"],
      capability: "chat",
    });
  }

  /** Throws, or rejects, with the error of whatever refuses or fails the request. */
  complete(context: ArrivedChat): Promise<ChatOutcome> {
    const { request } = context;
    assertSupported(request);
    const claim = claimOf(context);
    const routed = this.#route(context);
    return routed instanceof Promise
      ? routed.then((plan) => this.#admitRate(context, plan, claim))
      : this.#admitRate(context, routed, claim);
  }

  #admitRate(
    context: ArrivedChat,
    plan: RoutePlan,
    claim: IdempotencyClaim | undefined,
  ): Promise<ChatOutcome> {
    const { caller, log } = context;
    const taken = context.takenRate ?? takeRate(this.#dependencies.rates, caller);
    if (claim !== undefined || taken instanceof Promise) {
      return this.#completeSlowly(context, plan, claim, taken);
    }
    log.headers = taken;
    return this.#serve(context, plan, undefined);
  }

  /** The way of a request whose limit or idempotency key has to be waited for. */
  async #completeSlowly(
    context: ArrivedChat,
    plan: RoutePlan,
    claim: IdempotencyClaim | undefined,
    taken: RateHeaders | Promise<RateHeaders>,
  ): Promise<ChatOutcome> {
    const headers = await taken;
    context.log.headers = headers;
    if (claim === undefined) return this.#serve(context, plan, claim);
    const { idempotency } = this.#dependencies;
    const replay = await idempotency.claim(claim, context.clientSignal);
    if (replay !== undefined) {
      await context.arrival.admitAgain();
      return { kind: "replay", ...replay, headers: { ...replay.headers, ...headers } };
    }
    try {
      // The wait for another call may have been long, and the key changed meanwhile.
      const current = { ...context, caller: await context.arrival.admitAgain() };
      return await this.#serve(current, await this.#route(current), claim);
    } catch (error) {
      await idempotency.free(claim);
      throw error;
    }
  }

  #serve(
    context: ChatContext,
    plan: RoutePlan,
    claim: IdempotencyClaim | undefined,
  ): Promise<ChatOutcome> {
    const admitted = this.#admit(context, plan, claim);
    return admitted instanceof Promise
      ? admitted.then((chat) => this.#answer(chat))
      : this.#answer(admitted);
  }

  #answer(chat: AdmittedChat): Promise<ChatOutcome> {
    return chat.request.stream === true
      ? streamChat(this.#dependencies, chat)
      : completeChat(this.#dependencies, chat);
  }

  /** At once, but where one of the organization's own models may be meant. */
  #route(context: ChatContext): RoutePlan | Promise<RoutePlan> {
    const preferences = routePreferences(context.request);
    const { organizationId } = context.caller.key;
    const index = this.#dependencies.tunedModels.indexFor(organizationId, preferences.models);
    return index instanceof Promise
      ? index.then((own) => this.#plan(context, preferences, own))
      : this.#plan(context, preferences, index);
  }

  #plan(
    { caller, log, request }: ChatContext,
    preferences: RoutePreferences,
    index: ModelIndex,
  ): RoutePlan {
    const plan = this.#plans.plan(index, preferences);
    log.model = plan.models[0]!.id;
    assertModelsAllowed(caller.key, plan.models, preferences.modelsField, index);
    return planFields(request, plan);
  }

  /** At once where the actors are in memory and the money is there. */
  #admit(
    context: ChatContext,
    plan: RoutePlan,
    claim: IdempotencyClaim | undefined,
  ): AdmittedChat | Promise<AdmittedChat> {
    const { request, caller } = context;
    const organization = this.#dependencies.organizations.get(caller.key.organizationId);
    if (!organization.isActive) {
      return organization.activate().then(() => this.#admit(context, plan, claim));
    }
    const fee = feeOf(organization.turn("terms", undefined), plan);
    const size = promptSize(request);
    const bound = costBound(request, size, coveredTerms(plan));
    const held = this.#dependencies.money.hold({
      requestId: context.requestId,
      organizationId: caller.key.organizationId,
      keyId: caller.key.id,
      fixedFemto: bound.fixedFemto,
      perTokenFemto: bound.perTokenFemto,
      outputTokens: bound.outputTokens,
      isLimitExplicit: statedOutputLimit(request) !== undefined,
      feeBasisPoints: fee,
    });
    return held instanceof Promise
      ? held.then((hold) => admittedChat(context, plan, size, hold, claim))
      : admittedChat(context, plan, size, held, claim);
  }
}

function admittedChat(
  context: ChatContext,
  plan: RoutePlan,
  size: PromptSize,
  hold: Hold,
  claim: IdempotencyClaim | undefined,
): AdmittedChat {
  const { request } = context;
  return {
    caller: context.caller,
    requestId: context.requestId,
    startedMs: context.startedMs,
    request,
    bodyText: context.bodyText,
    idempotencyHeader: context.idempotencyHeader,
    clientSignal: context.clientSignal,
    log: context.log,
    plan,
    size,
    hold,
    claim,
    hidesReasoning: request.include_reasoning === false || request.reasoning?.exclude === true,
    details: recordedDetails(request),
  };
}

function feeOf(terms: FeeTerms | undefined, plan: RoutePlan): bigint {
  if (terms === undefined) throw new GatewayError("invalid_api_key", "The API key is not valid.");
  if (terms.plan === "byok") assertOwnKeys(plan);
  return feeOfTerms(terms);
}

/** On the BYOK plan the provider bills the caller directly, which takes a provider key of the caller. */
function assertOwnKeys(plan: RoutePlan): void {
  const foreign = plan.candidates.find(({ providerId }) => providerId !== KEYLESS_PROVIDER);
  if (foreign === undefined) return;
  throw new GatewayError(
    "insufficient_credits",
    `The organization's plan is BYOK, and it has no provider key for ${foreign.providerId}.`,
  );
}

function claimOf(context: ChatContext): IdempotencyClaim | undefined {
  const { request, caller, bodyText } = context;
  const idempotencyKey = idempotencyKeyOf(
    context.idempotencyHeader,
    request.metadata?.idempotency_key,
  );
  if (idempotencyKey === undefined) return undefined;
  return {
    keyId: caller.key.id,
    idempotencyKey,
    bodyHash: bodyHash(ROUTE, bodyText),
    requestId: context.requestId,
  };
}

/** What is kept of the request for its owner: no prompt. */
function recordedDetails(request: ChatRequest): Record<string, unknown> | null {
  let details: Record<string, unknown> | null = null;
  for (const field of RECORDED_FIELDS) {
    const value = request[field];
    if (value === undefined || value === null) continue;
    details ??= {};
    details[field] = value;
  }
  return details;
}

const RECORDED_FIELDS = ["user", "session_id", "trace", "metadata"] as const;
