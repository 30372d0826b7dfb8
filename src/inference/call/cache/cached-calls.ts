import type { IdempotencyClaim } from "../../../../db/queries/idempotency.ts";
import type { AnswerKey } from "../../../../db/queries/response-cache.ts";
import { usageFigures } from "../../../billing/ledger/usage.ts";
import { type Clock, secondsNow } from "../../../lib/clock.ts";
import { clientClosed } from "../../../lib/errors.ts";
import { usdNumber, usdText } from "../../../lib/money.ts";
import { NO_TOKENS } from "../../../lib/usage.ts";
import type { CallAdmission, Fees } from "../admission.ts";
import { addHitHeaders } from "../answer-headers.ts";
import type { AcceptedCall, AdmittedCall, CallOutcome } from "../call.ts";
import { CallCharge, type ChargeDependencies, type MeteredFigures } from "../call-charge.ts";
import {
  type AcceptedRequest,
  type CacheFormat,
  fixedBound,
  type HitFacts,
  type PaidEndpoint,
  recordedDetails,
} from "../endpoint.ts";
import type { RoutePlan } from "../routing/plan-route.ts";
import type { AnswerCache, CachedAnswer } from "./answer-cache.ts";
import { CacheWriter } from "./cache-writer.ts";
import type { InFlightDeduplication, Leader } from "./in-flight-deduplication.ts";
import { answerKey, type CacheOrder } from "./order.ts";

export interface CachedCallDependencies extends ChargeDependencies {
  readonly admission: CallAdmission;
  readonly answers: AnswerCache;
  readonly flights: InFlightDeduplication;
  readonly clock: Clock;
}

/** A call that uses the response cache, after routing and rate limit. */
export interface CachedCall<Request extends AcceptedRequest> {
  readonly order: CacheOrder;
  readonly endpoint: Pick<PaidEndpoint<Request, unknown>, "route" | "title" | "stream">;
  readonly format: CacheFormat<Request>;
  readonly call: AcceptedCall<Request>;
  readonly plan: RoutePlan;
  readonly claim: IdempotencyClaim | undefined;
  /**
   * Checks the key and plans the route again after a wait. Rejects if the key can no longer make the call.
   */
  readmit(): Promise<Pick<CachedCall<Request>, "call" | "plan">>;
  /** Calls a provider and charges for the answer. */
  pay(
    current: Pick<CachedCall<Request>, "call" | "plan">,
    cacheWriter: CacheWriter | undefined,
  ): Promise<CallOutcome>;
}

const NO_FEES: Fees = { of: () => 0n, highest: 0n };
const NOTHING = fixedBound(0, 0);

/**
 * The step of the paid call that looks for the answer of an equal request before money is held. An answer
 * from the cache costs nothing. It is charged 0, recorded and reported like any other call.
 */
export class CachedCalls {
  readonly #dependencies: CachedCallDependencies;
  #hits = 0;
  #misses = 0;

  constructor(dependencies: CachedCallDependencies) {
    this.#dependencies = dependencies;
  }

  get hits(): number {
    return this.#hits;
  }

  get misses(): number {
    return this.#misses;
  }

  async serve<Request extends AcceptedRequest>(
    cachedCall: CachedCall<Request>,
  ): Promise<CallOutcome> {
    const { answers } = this.#dependencies;
    const { order, endpoint, format, call, plan } = cachedCall;
    const identity = format.identity(call.request);
    if (identity === undefined) return cachedCall.pay(cachedCall, undefined);
    const { organizationId } = call.caller.key;
    const models = plan.models.map(({ id }) => id);
    const { guard } = call;
    const identityWithGuardrails =
      guard === undefined ? identity : { ...identity, ...{ "": guard.guardrails } };
    const keyHash = answerKey({
      organizationId,
      route: endpoint.route,
      models,
      identity: identityWithGuardrails,
    });
    const key = { organizationId, keyHash };
    const found = await answers.find(key);
    if (found.answer !== undefined) return this.#hit(cachedCall, keyHash, found.answer);
    return order.isSingleFlight
      ? this.#joinFlight(cachedCall, key)
      : this.#miss(cachedCall, cachedCall, { key, generation: found.generation });
  }

  /** Waits for the answer of an equal running request, or makes the answer itself. */
  async #joinFlight<Request extends AcceptedRequest>(
    cachedCall: CachedCall<Request>,
    key: AnswerKey,
  ): Promise<CallOutcome> {
    const { answers, flights } = this.#dependencies;
    const { requestId, clientSignal } = cachedCall.call;
    let generation: number | undefined;
    const joined = await flights.join({
      key,
      requestId,
      clientSignal,
      async find() {
        const found = await answers.find(key);
        generation = found.generation;
        return found.answer;
      },
    });
    const flight = joined.kind === "leads" ? joined.flight : undefined;
    try {
      // The key may have changed during a long wait.
      const current = await cachedCall.readmit();
      if (joined.kind === "leads") {
        return await this.#miss(cachedCall, current, { key, generation, flight });
      }
      return await this.#hit({ ...cachedCall, ...current }, key.keyHash, joined.answer);
    } catch (error) {
      flight?.end(undefined);
      throw error;
    }
  }

  async #miss<Request extends AcceptedRequest>(
    { order, format, pay }: CachedCall<Request>,
    current: Pick<CachedCall<Request>, "call" | "plan">,
    { key, generation, flight }: CacheMiss,
  ): Promise<CallOutcome> {
    this.#misses++;
    const { log, lifetime } = current.call;
    log.cache = "miss";
    lifetime.responseHeaders = {
      ...lifetime.responseHeaders,
      ...cacheHeaders("miss", key.keyHash),
    };
    const { answers } = this.#dependencies;
    const onEnd = (answer: CachedAnswer | undefined) => flight?.end(answer);
    const isStream = current.call.request.fields.stream === true && format.gather !== undefined;
    const cacheWriter = new CacheWriter({
      ...{ answers, format, key, generation, order, isStream, onEnd },
    });
    try {
      const outcome = await pay(current, cacheWriter);
      cacheWriter.noteHeaders(outcome.headers);
      if (outcome.kind === "whole") await cacheWriter.whole(outcome.body);
      // The end of a stream ends the writer.
      if (outcome.kind !== "stream") cacheWriter.end();
      return outcome;
    } catch (error) {
      cacheWriter.end();
      throw error;
    }
  }

  async #hit<Request extends AcceptedRequest>(
    { endpoint, format, call, plan, claim }: CachedCall<Request>,
    keyHash: string,
    answer: CachedAnswer,
  ): Promise<CallOutcome> {
    const { admission, clock } = this.#dependencies;
    const { request, log } = call;
    this.#hits++;
    const hold = await admission.hold(call, { bounds: [NOTHING], byok: [] }, NO_FEES, true);
    const admitted: AdmittedCall<Request> = {
      ...call,
      plan,
      hold,
      fees: NO_FEES,
      statedLimit: undefined,
      explainsRoute: false,
      route: endpoint.route,
      title: endpoint.title,
      details: recordedDetails(request.fields),
      claim,
    };
    const charge = new CallCharge(this.#dependencies, admitted);
    try {
      if (call.clientSignal.aborted) throw clientClosed();
      const facts: HitFacts = {
        requestId: call.requestId,
        model: answer.model,
        usage: answer.usage,
        nowSeconds: secondsNow(clock),
      };
      const also = await format.storeAnswer?.(answer.text, admitted, facts);
      const isStream = request.fields.stream === true && format.stream !== undefined;
      const body = isStream
        ? format.stream!(answer.text, request, facts)
        : format.whole(answer.text, request, facts);
      const figures = hitFigures(admitted, answer);
      const headers: Record<string, string> = {
        "content-type": isStream ? EVENT_STREAM : "application/json",
        ...(isStream && { "cache-control": "no-cache" }),
      };
      addHitHeaders(headers, admitted, figures, answer.headers);
      Object.assign(headers, cacheHeaders("hit", keyHash), {
        "x-gateway-cache-savings": usdText(answer.costNano),
      });
      Object.assign(log, { cache: "hit", model: answer.model, costNano: 0n });
      const bytes = new TextEncoder().encode(body);
      const storedResult = claim && { claim, headers, body: bytes, isClaimNeeded: true };
      await charge.settle(figures, 200, undefined, storedResult, also);
      const { organizationId } = call.caller.key;
      this.#dependencies.answers.noteHit({ organizationId, keyHash }, answer.costNano);
      return { kind: "whole", headers, body: bytes };
    } catch (error) {
      charge.release();
      throw error;
    }
  }
}

interface CacheMiss {
  readonly key: AnswerKey;
  readonly generation: number | undefined;
  /** The entry for which equal requests wait. */
  readonly flight?: Leader | undefined;
}

const EVENT_STREAM = "text/event-stream; charset=utf-8";

function cacheHeaders(outcome: "hit" | "miss", keyHash: string): Record<string, string> {
  return { "x-gateway-cache": outcome, "x-gateway-cache-key": keyHash };
}

/**
 * Returns the figures of a cache hit: no charge and no tokens, because no provider was called. The details
 * contain the original charge as savings.
 */
function hitFigures(
  { startedMs, title, details }: AdmittedCall<AcceptedRequest>,
  { model, provider, costNano }: CachedAnswer,
): MeteredFigures {
  return {
    chargeNano: 0n,
    feeNano: 0n,
    clampedNano: 0n,
    model,
    provider,
    ...usageFigures(NO_TOKENS),
    latencyMs: Math.max(0, Math.round(performance.now() - startedMs)),
    details: { ...details, cache: "hit", cache_savings_usd: usdNumber(costNano) },
    status: 0,
    description: `${title}: ${model}`,
  };
}
