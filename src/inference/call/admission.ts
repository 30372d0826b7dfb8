import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import type { PeriodHeadroom } from "../../../actors/periods/state.ts";
import type { Query } from "../../../db/client.ts";
import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { dayAccountId, monthAccountId } from "../../../db/ledger/rows.ts";
import { findMoneyLeft, type MoneyLeft } from "../../../db/queries/organizations.ts";
import type { BudgetSubjects, SubjectFields } from "../../billing/ledger/budget-subjects.ts";
import type {
  BudgetSubject,
  Hold,
  HoldRequest,
  LongHoldRequest,
  MoneyPort,
} from "../../billing/ledger/interface.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ExactInteger } from "../../lib/exact-integer.ts";
import { type FeeTerms, feeOfTerms } from "../../lib/plans.ts";
import type { RequestFacts } from "../../lib/request-facts.ts";
import { utcDay, utcMonth } from "../../lib/utc-time.ts";
import {
  type RateDecision,
  type RateWindows,
  tokenWindow,
} from "../../platform/cluster/interface.ts";
import { halfOf, secondsUntil, TokenReservation } from "./call-tokens.ts";
import type { CostBound } from "./endpoint.ts";

export type RateHeaders = Readonly<Record<string, string>>;

export interface AdmissionDependencies {
  readonly rates: RateWindows;
  readonly organizations: OrganizationActors;
  readonly money: MoneyPort;
  readonly budgetSubjects: BudgetSubjects;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/** The API key behind a request, as it stood when the request was authenticated. */
export interface Caller {
  readonly key: ApiKeyRecord;
  /**
   * True for calls that can wait, such as those of batches: they take no more than half of the key's limits and of the
   * places at providers, together with all other calls, and leave the rest to these.
   */
  readonly isLowPriority?: boolean | undefined;
}

/** A request that arrives at a billed endpoint. */
export interface RateSubject {
  readonly caller: Caller;
  readonly requestId: string;
  /** The headers of the rate window where the request took its place in it before; else undefined. */
  readonly admittedRateHeaders: RateHeaders | undefined;
}

/** Where a call is served: what its fee depends on. */
export interface ServingEndpoint {
  readonly providerId: string;
  /** Of the organization's own, which the provider bills directly. */
  readonly byokKeyId?: string | undefined;
}

/** The platform fee of a request, by the place that serves it. */
export interface Fees {
  of(place: ServingEndpoint): bigint;
  /** On the BYOK plan: whether a place is called with a key of the organization's own. */
  readonly serves?: ((place: ServingEndpoint) => boolean) | undefined;
  readonly highest: bigint;
}

/** What a request may cost at each place. */
export interface HoldBounds {
  /** What is charged for it: nothing at a place with the organization's own key. */
  readonly bounds: readonly CostBound[];
  /** What providers bill the organization at such places, where the key's budgets count it. */
  readonly own: readonly CostBound[];
}

const NO_HEADERS: RateHeaders = {};
/** The provider that needs no key. */
const KEYLESS_PROVIDER = "sandbox";

/**
 * The front half of every billed request, in this order: its place in the rate window, the plan and the fee,
 * the hold. Answers that return at once and work that outlives the process pass through it alike.
 */
export class CallAdmission {
  readonly #dependencies: AdmissionDependencies;

  constructor(dependencies: AdmissionDependencies) {
    this.#dependencies = dependencies;
  }

  /** Takes one admission of the key's rate limit. Throws 429; returns the headers of spec 4.5. */
  takeRate({
    caller: { key, isLowPriority },
    admittedRateHeaders,
  }: Pick<RateSubject, "caller" | "admittedRateHeaders">): RateHeaders | Promise<RateHeaders> {
    if (admittedRateHeaders !== undefined) return admittedRateHeaders;
    if (key.rateLimitRpm === null) return NO_HEADERS;
    const limit = isLowPriority === true ? halfOf(key.rateLimitRpm) : key.rateLimitRpm;
    const { rates, clock } = this.#dependencies;
    const decided = rates.take(key.id, limit);
    return decided instanceof Promise
      ? decided.then((decision) => admittedHeaders(decision, clock))
      : admittedHeaders(decided, clock);
  }

  /**
   * Takes the most tokens that a request can use of its key's limit. Undefined where the key, or the request, has none.
   * Rejects with 429, and with 400 where the limit could never cover the request.
   */
  takeTokens(
    { key, isLowPriority }: Caller,
    bounds: readonly CostBound[],
    isLimitExplicit: boolean,
  ): Promise<TokenReservation | undefined> {
    const limited = { id: key.id, rateLimitTpm: key.rateLimitTpm!, isLowPriority };
    return TokenReservation.take(
      this.#dependencies,
      limited,
      highestBound(bounds),
      isLimitExplicit,
    );
  }

  /**
   * Decides from the head of a request whether its long body is read: only of a key that has rate and money
   * left. It takes its place in the rate window now, whether or not the body turns out to be valid, so that
   * reading and parsing are bounded by the rate. Running holds are not counted: they may end before the body
   * has arrived. Returns the headers of the rate window, which are noted for every answer. Throws 429, 402,
   * 503.
   */
  async admitLongBody(caller: Caller, log: RequestFacts): Promise<RateHeaders> {
    const { clock, read } = this.#dependencies;
    const { key } = caller;
    const headers = await this.takeRate({ caller, admittedRateHeaders: undefined });
    log.headers = headers;
    await this.#assertTokensLeft(key);
    const nowMs = clock.nowMs();
    const [day, month] = [utcDay(nowMs).start, utcMonth(nowMs).start];
    const left = await read(findMoneyLeft(key.organizationId, key.id, day, month));
    if (left === undefined) throw invalidKey();
    await this.#assertBudgets(key, [
      usedUpPeriod("day", dayAccountId(key.id, day), day, key.dailyBudgetNano, left.spentTodayNano),
      usedUpPeriod(
        "month",
        monthAccountId(key.id, month),
        month,
        key.monthlyBudgetNano,
        left.spentThisMonthNano,
      ),
    ]);
    assertCredit(left);
    return headers;
  }

  /** Throws 402 if a period is used up. */
  async #assertBudgets(
    { id: keyId, organizationId }: ApiKeyRecord,
    periods: readonly (UsedUpPeriod | undefined)[],
  ): Promise<void> {
    const usedUp = periods.filter((period) => period !== undefined);
    const [first] = usedUp;
    if (first === undefined) return;
    await this.#dependencies.money.noteUsedUp({ organizationId, keyId }, usedUp);
    throw new GatewayError(
      "budget_exhausted",
      `The ${first.kind === "day" ? "daily" : "monthly"} budget of this API key is used up, so its request body was not read.`,
    );
  }

  /** Throws 429. */
  async #assertTokensLeft({ id, rateLimitTpm }: ApiKeyRecord): Promise<void> {
    if (rateLimitTpm === null) return;
    if ((await this.#dependencies.rates.remaining(tokenWindow(id), rateLimitTpm)) > 0) return;
    throw new GatewayError(
      "rate_limit_exceeded",
      `This API key has used its ${rateLimitTpm} tokens a minute, so the request body was not read.`,
      { retryAfterSeconds: 1 },
    );
  }

  /**
   * The fee of each place that may serve the request. On the BYOK plan the provider bills the caller
   * directly, which takes a provider key of the organization: throws 402 where every place needs one.
   */
  fees(caller: Caller, places: readonly ServingEndpoint[]): Fees | Promise<Fees> {
    const organization = this.#dependencies.organizations.get(caller.key.organizationId);
    if (!organization.isActive)
      return organization.activate().then(() => this.fees(caller, places));
    const terms: FeeTerms | undefined = organization.turn("terms", undefined);
    if (terms === undefined) throw invalidKey();
    if (terms.plan === "byok") assertByokKeys(places);
    const ofPlan = feeOfTerms(terms);
    return {
      of: ({ byokKeyId }) => (byokKeyId === undefined ? ofPlan : 0n),
      serves: terms.plan === "byok" ? isOwn : undefined,
      highest: ofPlan,
    };
  }

  /** The end user and the tags of a request that have budgets; at once where that is known. */
  subjectsOf({ key }: Caller, fields: SubjectFields): ReturnType<BudgetSubjects["of"]> {
    return this.#dependencies.budgetSubjects.of(key.organizationId, fields);
  }

  /**
   * Holds what the request may cost at most at the dearest place, so that one hold covers every fallback.
   * Throws 402.
   * @param mostUnits what the limit of units was lowered to
   */
  hold(
    { caller: { key }, requestId }: RateSubject,
    { bounds, own }: HoldBounds,
    fees: Fees,
    isLimitExplicit: boolean,
    subjects?: readonly BudgetSubject[] | undefined,
    mostUnits = Number.POSITIVE_INFINITY,
  ): Hold | Promise<Hold> {
    const { fixedFemto, perUnitFemto, units } = highestBound(bounds);
    const request: HoldRequest = {
      requestId,
      organizationId: key.organizationId,
      keyId: key.id,
      subjects,
      fixedFemto,
      perTokenFemto: perUnitFemto,
      outputTokens: Math.min(units, mostUnits),
      isLimitExplicit,
      feeBasisPoints: fees.highest,
    };
    const { money } = this.#dependencies;
    return own.length === 0
      ? money.hold(request)
      : money.hold({ ...request, budget: withOwn(request, own) });
  }

  /** Holds money for work that outlives this process, in one transaction with `also`. Throws 402. */
  holdLong(request: LongHoldRequest, also: StatementEffect): Promise<void> {
    return this.#dependencies.money.holdLong(request, also);
  }
}

const BASIS_POINTS = 10_000n;

/** What a request may cost, fee included, or its provider bill the organization: whichever is higher. */
function withOwn(request: HoldRequest, own: readonly CostBound[]): HoldRequest {
  const withFee = (femto: ExactInteger): bigint =>
    (BigInt(femto) * (BASIS_POINTS + request.feeBasisPoints) + BASIS_POINTS - 1n) / BASIS_POINTS;
  const highest = highestBound(own);
  const most = (femto: ExactInteger, ofOwn: ExactInteger): bigint => {
    const ofOperator = withFee(femto);
    return ofOperator > BigInt(ofOwn) ? ofOperator : BigInt(ofOwn);
  };
  return {
    ...request,
    fixedFemto: most(request.fixedFemto, highest.fixedFemto),
    perTokenFemto: most(request.perTokenFemto, highest.perUnitFemto),
    feeBasisPoints: 0n,
  };
}

/** The highest of each part, so that one hold covers the chain of fallbacks. */
export function highestBound(bounds: readonly CostBound[]): CostBound {
  if (bounds.length === 1) return bounds[0]!;
  let fixedFemto: ExactInteger = 0;
  let perUnitFemto: ExactInteger = 0;
  let units = 0;
  let fixedTokens = 0;
  let perUnitTokens = 0;
  for (const bound of bounds) {
    if (bound.fixedFemto > fixedFemto) fixedFemto = bound.fixedFemto;
    if (bound.perUnitFemto > perUnitFemto) perUnitFemto = bound.perUnitFemto;
    units = Math.max(units, bound.units);
    fixedTokens = Math.max(fixedTokens, bound.fixedTokens);
    perUnitTokens = Math.max(perUnitTokens, bound.perUnitTokens);
  }
  return { fixedFemto, perUnitFemto, units, fixedTokens, perUnitTokens };
}

function isOwn({ providerId, byokKeyId }: ServingEndpoint): boolean {
  return byokKeyId !== undefined || providerId === KEYLESS_PROVIDER;
}

function assertByokKeys(places: readonly ServingEndpoint[]): void {
  const [foreign] = places;
  if (foreign === undefined || places.some(isOwn)) return;
  throw new GatewayError(
    "insufficient_credits",
    `The organization's plan is BYOK, and it has no provider key of its own that serves this at ${foreign.providerId}.`,
  );
}

/** Throws 429. */
function admittedHeaders(decision: RateDecision, clock: Clock): RateHeaders {
  const headers = rateHeaders(decision, clock);
  if (decision.isAdmitted) return headers;
  throw new GatewayError(
    "rate_limit_exceeded",
    `This API key is limited to ${decision.limit} requests a minute.`,
    // The client needs at least a millisecond to ask again.
    { retryAfterSeconds: (decision.retryAfterMs - 1) / 1_000, headers },
  );
}

/** By the names of the specification, and by those that OpenAI's clients know. */
function rateHeaders(decision: RateDecision, clock: Clock): RateHeaders {
  const limit = String(decision.limit);
  const remaining = String(decision.remaining);
  return {
    "x-ratelimit-limit": limit,
    "x-ratelimit-remaining": remaining,
    "x-ratelimit-reset": String(Math.ceil(decision.resetMs / 1_000)),
    "x-ratelimit-limit-requests": limit,
    "x-ratelimit-remaining-requests": remaining,
    "x-ratelimit-reset-requests": secondsUntil(decision.resetMs, clock),
  };
}

function invalidKey(): GatewayError {
  return new GatewayError("invalid_api_key", "The API key is not valid.");
}

type UsedUpPeriod = Omit<PeriodHeadroom, "availableNano">;

/** Returns undefined if the period has no budget, or something of it is left. */
function usedUpPeriod(
  kind: "day" | "month",
  accountId: string,
  periodStart: string,
  budgetNano: bigint | null,
  spentNano: bigint,
): UsedUpPeriod | undefined {
  if (budgetNano === null || spentNano < budgetNano) return undefined;
  return { kind, accountId, periodStart, budgetNano, remainingNano: budgetNano - spentNano };
}

/** On the plan `byok` calls are not charged here: they go to the organization's own provider accounts. */
function assertCredit({ plan, balanceNano, creditLimitNano }: MoneyLeft): void {
  if (plan === "byok" || creditLimitNano === null || balanceNano + creditLimitNano > 0n) return;
  throw new GatewayError(
    "insufficient_credits",
    "The organization's credits are used up, so the request body was not read.",
  );
}
