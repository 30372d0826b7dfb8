import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type { RateWindows } from "../../coordination/interface.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { ChatProvider } from "../../providers/interface.ts";
import { takeRate } from "../billing/admit.ts";
import { bodyHash, idempotencyKeyOf } from "../idempotency/idempotency.ts";
import type { TunedModels } from "../models/tuned-models.ts";
import type { OrganizationActors } from "../money/alone.ts";
import { EarlyHoldRefused } from "../money/early-refusal.ts";
import { feeBasisPoints } from "../plans.ts";
import {
  assertModelsAllowed,
  planRoute,
  type RoutePlan,
  type RoutePreferences,
  resolveModels,
} from "../routing/plan-route.ts";
import { type CompleteChatDependencies, completeChat } from "./complete-chat.ts";
import { costBound, promptSize } from "./cost-bound.ts";
import type { AdmittedChat, ChatContext, ChatOutcome } from "./prepared-chat.ts";
import { type ChatRequest, statedOutputLimit } from "./request.ts";
import { routePreferences } from "./route-preferences.ts";
import { type StreamChatDependencies, streamChat } from "./stream-chat.ts";
import { assertSupported } from "./unsupported-fields.ts";

export interface ChatCompletionsDependencies
  extends StreamChatDependencies,
    CompleteChatDependencies {
  readonly tunedModels: TunedModels;
  readonly providers: ReadonlyMap<string, ChatProvider>;
  readonly rates: RateWindows;
  readonly organizations: OrganizationActors;
}

const ROUTE = "POST /v1/chat/completions";
/** The provider that needs no key of anyone's. */
const KEYLESS_PROVIDER = "sandbox";

/** Chat completions (spec 4.5): route, limit, hold, call, meter, settle, answer. */
export class ChatCompletions {
  readonly #dependencies: ChatCompletionsDependencies;

  constructor(dependencies: ChatCompletionsDependencies) {
    this.#dependencies = dependencies;
  }

  async complete(context: ChatContext): Promise<ChatOutcome> {
    const { request, caller, log } = context;
    assertSupported(request);
    const claim = claimOf(context);
    const routed = this.#route(context);
    const plan = routed instanceof Promise ? await routed : routed;
    const taken = takeRate(this.#dependencies.rates, caller);
    const headers = taken instanceof Promise ? await taken : taken;
    log.headers = headers;
    log.model = plan.models[0]!.id;
    if (claim !== undefined) {
      const replay = await this.#dependencies.idempotency.claim(claim, context.clientSignal);
      if (replay !== undefined) {
        return { kind: "replay", ...replay, headers: { ...replay.headers, ...headers } };
      }
    }
    try {
      return await this.#serve(context, plan, claim, claim === undefined);
    } catch (error) {
      if (claim !== undefined) this.#dependencies.idempotency.free(claim);
      if (!(error instanceof EarlyHoldRefused)) throw error;
      // Nothing has left: the request begins again, and this time waits for its hold.
      delete log.errorCode;
      return this.#serve(context, plan, claim, false);
    }
  }

  async #serve(
    context: ChatContext,
    plan: RoutePlan,
    claim: IdempotencyClaim | undefined,
    mayBeginEarly: boolean,
  ): Promise<ChatOutcome> {
    const chat = await this.#admit(context, plan, claim, mayBeginEarly);
    return context.request.stream === true
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

  #plan({ caller }: ChatContext, preferences: RoutePreferences, index: ModelIndex): RoutePlan {
    const { providers } = this.#dependencies;
    const models = resolveModels(index, preferences, ["chat", "code"]);
    assertModelsAllowed(caller.key, models, index);
    return planRoute(models, preferences, providers);
  }

  async #admit(
    context: ChatContext,
    plan: RoutePlan,
    claim: IdempotencyClaim | undefined,
    mayBeginEarly: boolean,
  ): Promise<AdmittedChat> {
    const { request, caller } = context;
    const organization = this.#dependencies.organizations.get(caller.key.organizationId);
    if (!organization.isActive) await organization.activate();
    const fee = feeOf(organization.turn("headroom", undefined).plan, plan);
    const size = promptSize(request);
    const held = this.#dependencies.money.hold({
      requestId: context.requestId,
      organizationId: caller.key.organizationId,
      keyId: caller.key.id,
      ...costBound(request, size, plan.models),
      isLimitExplicit: statedOutputLimit(request) !== undefined,
      feeBasisPoints: fee,
      mayBeginEarly,
    });
    const hold = held instanceof Promise ? await held : held;
    return {
      ...context,
      plan,
      size,
      hold,
      claim,
      hidesReasoning: request.include_reasoning === false || request.reasoning?.exclude === true,
      details: recordedDetails(request),
    };
  }
}

function feeOf(planName: string | undefined, plan: RoutePlan): bigint {
  if (planName === undefined)
    throw new GatewayError("invalid_api_key", "The API key is not valid.");
  if (planName === "byok") assertOwnKeys(plan);
  return feeBasisPoints(planName);
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
  const details: Record<string, unknown> = {};
  for (const field of ["user", "session_id", "trace", "metadata"] as const) {
    const value = request[field];
    if (value !== undefined && value !== null) details[field] = value;
  }
  return Object.keys(details).length === 0 ? null : details;
}
