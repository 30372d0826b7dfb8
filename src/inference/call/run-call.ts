/**
 * The paid call: all steps from an authenticated request to its bill, for every billed endpoint.
 *
 *   route     the models and the candidates that can serve the request
 *   rate      the key's rate limit
 *   screen    the guardrails of the request, if there are any; then route again
 *   claim     the idempotency key, or the stored result of an earlier call; then route again
 *   cache     the answer of an equal request, if the caller enables the cache
 *   tokens    the most tokens that the call can use, if the key has a token limit
 *   bound     the maximum cost, with the fee
 *   hold      that amount of money
 *   prepare   the gateway's own work for the model, such as a web search
 *   try       candidates until one answers
 *   settle    the charge, its event and the stored result, in one transaction
 *
 * A failure at any step releases what earlier steps reserved. Whole answers are tried and settled in
 * whole-answer.ts. Streamed answers are relayed with checkpoints in stream/streamed-answer.ts.
 */

import type { IdempotencyClaim } from "../../../db/queries/idempotency.ts";
import type { Hold } from "../../billing/ledger/interface.ts";
import type { Caller } from "../../http/caller.ts";
import { bodyHash, idempotencyKeyOf } from "../../http/idempotency-key.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type ExactInteger, exact, plus } from "../../lib/exact-integer.ts";
import { BASIS_POINTS, FEMTO_PER_NANO } from "../../lib/money.ts";
import type { RequestLifetime } from "../../lib/request-log.ts";
import { traced } from "../../lib/trace.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";
import type { Provider } from "../../providers/interface.ts";
import type { DefinitionCache } from "../definitions/definition-cache.ts";
import type { Guardrail } from "../guardrails/screening/guardrail.ts";
import {
  type CallAdmission,
  type Fees,
  type HoldBounds,
  hasTokenLimit,
  type RateHeaders,
} from "./admission.ts";
import {
  type BatchAnswer,
  type PreparedBatchLine,
  prepareForBatch,
  type SettledBatchAnswer,
  settleBatchAnswer,
} from "./batched-call.ts";
import type { CacheWriter } from "./cache/cache-writer.ts";
import type { CachedCalls } from "./cache/cached-calls.ts";
import { cacheOrderOf } from "./cache/order.ts";
import { type AcceptedCall, type AdmittedCall, type CallOutcome, sentLimit } from "./call.ts";
import {
  type AcceptedRequest,
  type CostBound,
  type PaidEndpoint,
  recordedDetails,
} from "./endpoint.ts";
import { CallGuard, type GuardDependencies } from "./guard/call-guard.ts";
import type { ByokKeys, LoadedByokKeys } from "./routing/byok-keys.ts";
import { CacheAffinity, statesOrder } from "./routing/cache-affinity.ts";
import { measuredEndpoint } from "./routing/failover.ts";
import { assertModelsAllowed, type RoutePlan } from "./routing/plan-route.ts";
import { type RoutePreferences, routePreferences } from "./routing/preferences.ts";
import { RoutePlans } from "./routing/route-plans.ts";
import type { TunedModels } from "./routing/tuned-models.ts";
import { type StreamDependencies, streamedAnswer } from "./stream/streamed-answer.ts";
import type { TokenReservations } from "./token-reservation.ts";
import { type WholeAnswerDependencies, wholeAnswer } from "./whole-answer.ts";

export interface PaidCallDependencies extends WholeAnswerDependencies, StreamDependencies {
  readonly admission: CallAdmission;
  readonly tunedModels: TunedModels;
  readonly byokKeys: ByokKeys;
  readonly definitions: DefinitionCache;
  readonly guarding: GuardDependencies;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly cache: CachedCalls;
}

/** The parts of a call that its route depends on. */
export type RoutedCall<Request> = Pick<AcceptedCall<Request>, "caller" | "log" | "request">;

const NO_BOUNDS: readonly CostBound[] = [];
const MONEY_CODES: ReadonlySet<string> = new Set(["insufficient_credits", "budget_exhausted"]);

/** Runs the requests of one endpoint. */
export class PaidCall<Request extends AcceptedRequest, Answer> {
  readonly endpoint: PaidEndpoint<Request, Answer>;
  readonly #dependencies: PaidCallDependencies;
  readonly #plans: RoutePlans;
  readonly #cacheAffinity: CacheAffinity;

  constructor(dependencies: PaidCallDependencies, endpoint: PaidEndpoint<Request, Answer>) {
    this.endpoint = endpoint;
    this.#dependencies = dependencies;
    const { categories, alsoServes, capability } = endpoint;
    const { providers, calls } = dependencies;
    this.#cacheAffinity = new CacheAffinity(calls.steadyClock);
    this.#plans = new RoutePlans({
      providers,
      categories,
      ...(alsoServes !== undefined && { alsoServes }),
      capability,
      measured: (endpointId) => measuredEndpoint(calls.endpoints, endpointId),
      random: calls.random,
    });
  }

  /**
   * Checks rate and remaining money before stored input (an earlier response, a conversation) is loaded. See
   * `admitLongBody`.
   */
  admitReading({
    caller,
    lifetime,
  }: {
    readonly caller: Caller;
    readonly lifetime: RequestLifetime;
  }): Promise<RateHeaders> {
    return this.#dependencies.admission.admitLongBody(caller, lifetime);
  }

  /** Runs a call. Rejects with the error of the step that rejected or failed the request. */
  async run(accepted: AcceptedCall<Request>): Promise<CallOutcome> {
    const { admission, cache, idempotency } = this.#dependencies;
    const { cacheFormat: format } = this.endpoint;
    const { lifetime, log } = accepted;
    const order = accepted.headers && cacheOrderOf(accepted.headers);
    const claim = this.#claimOf(accepted);
    const guarding = this.guardOf(accepted);
    const guard = guarding instanceof Promise ? await guarding : guarding;
    let call = accepted;
    let plan = await this.route(call);
    const headers = await traced(log.trace, "rate_limit", admission.takeRate(call));
    lifetime.responseHeaders = headers;
    if (guard !== undefined) {
      const request = await traced(log.trace, "screen", call.applyGuardrails!(guard));
      call = { ...call, guard, request };
      plan = await this.route(call);
    }
    if (claim !== undefined) {
      const claiming = idempotency.claim(claim, call.clientSignal);
      const replay = await traced(log.trace, "claim", claiming);
      if (replay !== undefined) {
        await call.admitAgain();
        return { kind: "replay", ...replay, headers: { ...replay.headers, ...headers } };
      }
    }
    try {
      if (claim !== undefined) ({ call, plan } = await this.#readmit(call));
      if (order === undefined || format === undefined) return await this.#pay(call, plan, claim);
      return await cache.serve({
        ...{ order, format, endpoint: this.endpoint, call, plan, claim },
        readmit: () => this.#readmit(call),
        pay: (current, cacheWriter) => this.#pay(current.call, current.plan, claim, cacheWriter),
      });
    } catch (error) {
      if (claim !== undefined) await idempotency.free(claim);
      throw error;
    }
  }

  /**
   * Checks the key and plans the route again after a wait, in which both may have changed. Rejects if the key
   * can no longer make the call.
   */
  async #readmit(call: AcceptedCall<Request>) {
    const current = { ...call, caller: await call.admitAgain() };
    return { call: current, plan: await this.route(current) };
  }

  /** Admits the call within tokens and money, calls providers and charges. */
  async #pay(
    call: AcceptedCall<Request>,
    planned: RoutePlan,
    claim: IdempotencyClaim | undefined,
    cacheWriter?: CacheWriter,
  ): Promise<CallOutcome> {
    const { request, caller, lifetime, log } = call;
    const { admission } = this.#dependencies;
    const statedLimit = this.endpoint.statedLimit(request);
    const isExplicit = statedLimit !== undefined;
    let tokens: TokenReservations | undefined;
    if (hasTokenLimit(caller.key)) {
      tokens = await admission.takeTokens(caller, this.#bounds(request, planned), isExplicit);
      lifetime.responseHeaders = { ...lifetime.responseHeaders, ...tokens?.headers };
    }
    try {
      const fees = await admission.fees(caller, planned.candidates);
      const { serves } = fees;
      let plan =
        serves === undefined
          ? planned
          : { ...planned, candidates: planned.candidates.filter(serves) };
      const loading = admission.subjectsOf(caller, request.fields);
      const subjects = loading instanceof Promise ? await loading : loading;
      const holdFor = (plan: RoutePlan): Hold | Promise<Hold> => {
        const bounds = this.#holdBounds(call, plan, fees);
        const most = tokens?.outputLimit;
        const holding = admission.hold(call, bounds, fees, isExplicit, subjects, most);
        return traced(log.trace, "hold", holding);
      };
      let hold: Hold;
      try {
        hold = await holdFor(plan);
      } catch (error) {
        plan = withByokOnly(plan, error);
        hold = await holdFor(plan);
      }
      if (hold.isLowered) tokens?.lowerTo(mostUnits(plan, { hold, statedLimit, tokens }));
      const admitted: AdmittedCall<Request> = {
        requestId: call.requestId,
        startedMs: call.startedMs,
        request,
        clientSignal: call.clientSignal,
        log,
        lifetime,
        guard: call.guard,
        plan,
        hold,
        fees,
        tokens,
        statedLimit,
        explainsRoute: request.fields.route_explain === true,
        route: this.endpoint.route,
        title: this.endpoint.title,
        details: recordedDetails(request.fields),
        claim,
        preparation: this.endpoint.preparation?.(request),
        cacheWriter,
        recordServed: this.#servedRecorder(call, plan),
      };
      if (call.begin === undefined) return await this.#answer(admitted);
      await this.#begin(call.begin, admitted);
      return await this.#answer({ ...admitted, claim: undefined });
    } catch (error) {
      tokens?.end(0);
      throw error;
    }
  }

  /** Answers the request before its call. Releases the hold if this fails. */
  async #begin(
    begin: NonNullable<AcceptedCall<Request>["begin"]>,
    admitted: AdmittedCall<Request>,
  ): Promise<void> {
    const { idempotency, money } = this.#dependencies;
    const { claim } = admitted;
    try {
      await begin(admitted, async (headers, body) => {
        if (claim !== undefined) await idempotency.storeWithoutCharge(claim, 200, headers, body);
      });
    } catch (error) {
      money.release(admitted.hold);
      throw error;
    }
  }

  #answer(admitted: AdmittedCall<Request>): Promise<CallOutcome> {
    const { request } = admitted;
    const { stream } = this.endpoint;
    if (request.fields.stream !== true || stream === undefined) {
      return wholeAnswer(this.#dependencies, this.endpoint, admitted);
    }
    const form = typeof stream === "function" ? stream(request) : stream;
    return streamedAnswer(this.#dependencies, form, admitted);
  }

  /** Prepares a call that a provider answers in a batch. See batched-call.ts. */
  prepareForBatch(accepted: AcceptedCall<Request>): Promise<PreparedBatchLine | undefined> {
    return prepareForBatch(this.#dependencies, this, accepted);
  }

  /** Returns the answer and the charge of a call that a provider has answered in a batch. */
  settleBatchAnswer(
    accepted: AcceptedCall<Request>,
    answer: BatchAnswer,
  ): Promise<SettledBatchAnswer> {
    return settleBatchAnswer(this.#dependencies, this.endpoint, accepted, answer);
  }

  /**
   * Returns the guardrails of a call, or undefined if it has none. Throws, or rejects with, 404 if the named
   * guardrail does not exist, and 400 if a guardrail cannot inspect the requested output. Not `async`, so that a
   * chat without guardrails, or with cached guardrails, has no additional await before its call.
   */
  guardOf(call: AcceptedCall<Request>): CallGuard | undefined | Promise<CallGuard | undefined> {
    if (call.applyGuardrails === undefined) return undefined;
    const { key } = call.caller;
    const guardrailName = call.request.fields.guardrail ?? undefined;
    const guardrails = this.#dependencies.definitions.guardrails(key, guardrailName);
    return guardrails instanceof Promise
      ? guardrails.then(this.#guardWith.bind(this, call))
      : this.#guardWith(call, guardrails);
  }

  #guardWith(
    { caller, request, log, clientSignal: signal }: AcceptedCall<Request>,
    guardrails: readonly Guardrail[] | undefined,
  ): CallGuard | undefined {
    if (guardrails === undefined) return undefined;
    const { guarding } = this.#dependencies;
    const { organizationId } = caller.key;
    const guard = new CallGuard({ ...guarding, guardrails, organizationId, signal, log });
    if (guard.screensOutput) this.endpoint.assertScreenable?.(request);
    return guard;
  }

  /**
   * Returns the plan of a request. Returns it without a promise if the organization's models and keys are
   * cached. Throws 404 if a model does not exist, 403 if the key is not allowed to use it, and 400 if no
   * candidate can serve the request.
   */
  route(call: RoutedCall<Request>): RoutePlan | Promise<RoutePlan> {
    const preferences = routePreferences(call.request.fields);
    const { organizationId } = call.caller.key;
    const { tunedModels, byokKeys } = this.#dependencies;
    const index = tunedModels.indexFor(organizationId, preferences.models);
    const loadedKeys = byokKeys.of(organizationId);
    return index instanceof Promise || loadedKeys instanceof Promise
      ? Promise.all([index, loadedKeys]).then((sources) =>
          this.#plan(call, preferences, ...sources),
        )
      : this.#plan(call, preferences, index, loadedKeys);
  }

  #plan(
    { caller, log, request }: RoutedCall<Request>,
    preferences: RoutePreferences,
    index: ModelIndex,
    byokKeys: LoadedByokKeys,
  ): RoutePlan {
    const affinity = () => this.#affinityOf(request);
    const planned = this.#plans.plan(index, preferences, { affinity, byokKeys });
    // This replaces the candidates. It comes before the endpoint's plan, which refers to them.
    const plan = caller.isLowPriority === true ? withLowPriority(planned) : planned;
    log.model = plan.models[0]!.id;
    assertModelsAllowed(caller.key, plan.models, preferences.modelsField, index);
    const supportedPlan = this.endpoint.plan?.(request, plan) ?? plan;
    if (this.#cacheAffinity.isEmpty || statesOrder(preferences.provider)) return supportedPlan;
    return this.#cacheAffinity.apply(supportedPlan, () => this.#conversationOf(caller, request));
  }

  #affinityOf(request: Request): string | undefined {
    return request.fields.session_id ?? this.endpoint.affinity?.(request);
  }

  #conversationOf({ key }: AcceptedCall<Request>["caller"], request: Request): string | undefined {
    const affinity = this.#affinityOf(request);
    return affinity === undefined ? undefined : `${key.organizationId}\n${affinity}`;
  }

  /**
   * Returns the function that records the candidate that answered. Returns undefined if the plan has one
   * candidate, or if the request states the order itself.
   */
  #servedRecorder(
    { caller, request }: AcceptedCall<Request>,
    plan: RoutePlan,
  ): AdmittedCall<Request>["recordServed"] {
    if (plan.candidates.length < 2 || statesOrder(request.fields.provider)) return undefined;
    return (candidate) =>
      this.#cacheAffinity.recordServed(plan, candidate, () =>
        this.#conversationOf(caller, request),
      );
  }

  #holdBounds({ caller, request }: AcceptedCall<Request>, plan: RoutePlan, fees: Fees): HoldBounds {
    const countsByok = caller.key.budgetIncludesByok;
    const byok = countsByok ? this.#byokBounds(request, plan, fees) : NO_BOUNDS;
    return { bounds: this.#bounds(request, plan), byok };
  }

  /** Returns upper bounds of what providers and the gateway can bill for the BYOK candidates. */
  #byokBounds(request: Request, { candidates }: RoutePlan, { highest }: Fees): CostBound[] {
    return candidates
      .filter(({ byokKeyId }) => byokKeyId !== undefined)
      .map((candidate) => {
        const bound = this.endpoint.bound(request, candidate.terms, candidate);
        const { fixedFemto, toolsFemto = 0 } = bound;
        if (toolsFemto === 0) return bound;
        return { ...bound, fixedFemto: plus(fixedFemto, feeFemto(toolsFemto, highest)) };
      });
  }

  /**
   * Returns upper bounds of the gateway's charge for each candidate, or for each model if no candidate is
   * available.
   */
  #bounds(request: Request, { models, candidates }: RoutePlan): CostBound[] {
    if (candidates.length === 0) return models.map((terms) => this.endpoint.bound(request, terms));
    return candidates.map((candidate) => {
      const { terms, byokKeyId } = candidate;
      const bound = this.endpoint.bound(request, terms, candidate);
      if (byokKeyId === undefined) return bound;
      return { ...bound, fixedFemto: bound.toolsFemto ?? 0, perUnitFemto: 0 };
    });
  }

  #claimOf(call: AcceptedCall<Request>): IdempotencyClaim | undefined {
    const { request, caller, bodyText, requestId } = call;
    let internalKey = call.internalIdempotency;
    if (internalKey === undefined) {
      const metadataKey = request.fields.metadata?.idempotency_key;
      const idempotencyKey = idempotencyKeyOf(call.idempotencyHeader, metadataKey);
      if (idempotencyKey === undefined) return undefined;
      internalKey = { keyId: caller.key.id, idempotencyKey };
    }
    const hash = request.bodyHash ?? bodyHash(this.endpoint.route, bodyText);
    const claim = { ...internalKey, bodyHash: hash, requestId };
    return call.storeLargeResult === undefined
      ? claim
      : { ...claim, storeLargeResult: call.storeLargeResult };
  }
}

/** Returns the plan for low-priority calls (batches), which can use at most half of each concurrency limit. */
function withLowPriority(plan: RoutePlan): RoutePlan {
  const candidates = plan.candidates.map((candidate) => {
    const { limits } = candidate;
    if (limits === undefined) return candidate;
    return { ...candidate, limits: limits.map((limit) => ({ ...limit, reservesHalf: true })) };
  });
  return { ...plan, candidates };
}

/** Returns the highest limit of units that any candidate is sent. */
function mostUnits({ candidates }: RoutePlan, admitted: Parameters<typeof sentLimit>[0]): number {
  const limits = candidates.map(
    (candidate) => sentLimit(admitted, candidate) ?? candidate.terms.maxOutputTokens,
  );
  return Math.max(0, ...limits);
}

/** Returns an upper bound of the fee: one nano-USD more, because the charge rounds the fee separately. */
function feeFemto(costFemto: ExactInteger, feeBasisPoints: bigint): ExactInteger {
  return exact((BigInt(costFemto) * feeBasisPoints) / BASIS_POINTS + FEMTO_PER_NANO);
}

/**
 * Returns the plan with only the BYOK candidates after a hold failed for lack of money. Throws the error if
 * it has another reason, or if the plan has no BYOK candidates or no others.
 */
function withByokOnly(plan: RoutePlan, error: unknown): RoutePlan {
  const byokCandidates = plan.candidates.filter(({ byokKeyId }) => byokKeyId !== undefined);
  const isMoneyError = error instanceof GatewayError && MONEY_CODES.has(error.code);
  if (
    !isMoneyError ||
    byokCandidates.length === 0 ||
    byokCandidates.length === plan.candidates.length
  )
    throw error;
  return { ...plan, candidates: byokCandidates };
}
