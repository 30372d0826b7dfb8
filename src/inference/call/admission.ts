import type { PeriodHeadroom } from "../../../actors/budget-periods/state.ts";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
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
import type { Caller } from "../../http/caller.ts";
import type { ApiKeyRecord, TeamLimits } from "../../lib/api-key-record.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ExactInteger } from "../../lib/exact-integer.ts";
import { BASIS_POINTS } from "../../lib/money.ts";
import { type FeeTerms, feeOfTerms } from "../../lib/plans.ts";
import type { RequestLifetime } from "../../lib/request-log.ts";
import { utcDay, utcMonth } from "../../lib/utc-time.ts";
import {
  type RateDecision,
  type RateWindows,
  tokenWindow,
} from "../../platform/cluster/interface.ts";
import type { CostBound } from "./endpoint.ts";
import {
  lowPriorityLimit,
  secondsUntil,
  type TokenLimit,
  TokenReservations,
} from "./token-reservation.ts";

export type RateHeaders = Readonly<Record<string, string>>;

export interface AdmissionDependencies {
  readonly rates: RateWindows;
  readonly organizations: OrganizationActors;
  readonly money: MoneyPort;
  readonly budgetSubjects: BudgetSubjects;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/** A request to a billed endpoint, as far as the rate limit needs it. */
export interface RateSubject {
  readonly caller: Caller;
  readonly requestId: string;
  /** The rate limit headers, if the request has already been counted. Otherwise undefined. */
  readonly admittedRateHeaders: RateHeaders | undefined;
}

/** The endpoint that serves a call, as far as the fee depends on it. */
export interface ServingEndpoint {
  readonly providerId: string;
  /** The id of the organization's provider key (BYOK), if the provider bills the organization directly. */
  readonly byokKeyId?: string | undefined;
}

/** The platform fee of a request, in basis points, by the endpoint that serves it. */
export interface Fees {
  of(endpoint: ServingEndpoint): bigint;
  /**
   * Only on the BYOK plan: returns true if the endpoint is called with a provider key of the organization.
   */
  readonly serves?: ((endpoint: ServingEndpoint) => boolean) | undefined;
  /** The fee at an endpoint with the operator's key. */
  readonly highest: bigint;
}

/** Upper bounds of the cost of a request at each endpoint. */
export interface HoldBounds {
  /** The amounts that the gateway charges. Nothing at an endpoint with a BYOK key. */
  readonly bounds: readonly CostBound[];
  /** The amounts that providers bill the organization at such endpoints, if the key's budgets count them. */
  readonly byok: readonly CostBound[];
}

const NO_HEADERS: RateHeaders = {};
/** Beginning of a message about the limit of the calling key. */
const THIS_KEY = "This API key";
/** The provider that needs no key. */
const KEYLESS_PROVIDER = "sandbox";

/**
 * Admits a billed request: rate limit, then plan and fee, then hold. Requests that are answered directly and
 * jobs that outlive the process are admitted the same way.
 */
export class CallAdmission {
  readonly #dependencies: AdmissionDependencies;

  constructor(dependencies: AdmissionDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Counts the request against the key's rate limit. Returns the rate limit headers. Throws 429 if the limit is
   * reached.
   */
  takeRate({
    caller: { key, isLowPriority },
    admittedRateHeaders,
  }: Pick<RateSubject, "caller" | "admittedRateHeaders">): RateHeaders | Promise<RateHeaders> {
    if (admittedRateHeaders !== undefined) return admittedRateHeaders;
    const { team } = key;
    if (team === undefined || team.rateLimitRpm === null) {
      return this.#takeRequest(key, isLowPriority, THIS_KEY);
    }
    return this.#takeRequestOfTeam(key, team, isLowPriority);
  }

  #takeRequest(
    { id, rateLimitRpm }: Pick<ApiKeyRecord, "id" | "rateLimitRpm">,
    isLowPriority: boolean | undefined,
    limited: string,
  ): RateHeaders | Promise<RateHeaders> {
    if (rateLimitRpm === null) return NO_HEADERS;
    const limit = isLowPriority === true ? lowPriorityLimit(rateLimitRpm) : rateLimitRpm;
    const { rates, clock } = this.#dependencies;
    const decided = rates.take(id, limit);
    return decided instanceof Promise
      ? decided.then((decision) => admittedHeaders(decision, clock, limited))
      : admittedHeaders(decided, clock, limited);
  }

  /** Counts the request against the limits of the key and of its team. Returns the headers of the tighter one. */
  async #takeRequestOfTeam(
    key: ApiKeyRecord,
    team: TeamLimits,
    isLowPriority: boolean | undefined,
  ): Promise<RateHeaders> {
    const ofKey = await this.#takeRequest(key, isLowPriority, THIS_KEY);
    const ofTeam = await this.#takeRequest(team, isLowPriority, nameOfTeam(team));
    return remainingOf(ofKey) < remainingOf(ofTeam) ? ofKey : ofTeam;
  }

  /**
   * Reserves the most tokens that a request can use from the token limits of the key and its team. Returns undefined if the
   * request uses no tokens. Rejects with 429 if too few tokens are left, and with 400 if the limit can never
   * cover the request.
   */
  takeTokens(
    caller: Caller,
    bounds: readonly CostBound[],
    isLimitExplicit: boolean,
  ): Promise<TokenReservations | undefined> {
    const limited = tokenLimitsOf(caller.key).map((limit) => ({
      ...limit,
      isLowPriority: caller.isLowPriority,
    }));
    return TokenReservations.take(
      this.#dependencies,
      limited,
      highestBound(bounds),
      isLimitExplicit,
    );
  }

  /**
   * Decides from the head of a request whether its long body is read. The body is read only if the key has
   * requests and money left. The request is counted against the rate limit now, whether or not its body is
   * valid, so that the rate limit also bounds reading and parsing. Running holds are ignored, because they
   * can end before the body has arrived. Returns the rate limit headers, and sets them in `lifetime`, so
   * that a rejection has them too. Throws 429 if a rate limit is reached, 402 if a budget or the credit is used
   * up, 401 if the key no longer exists, and 503 if the database cannot be reached.
   */
  async admitLongBody(caller: Caller, lifetime: RequestLifetime): Promise<RateHeaders> {
    const { clock, read } = this.#dependencies;
    const { key } = caller;
    const headers = await this.takeRate({ caller, admittedRateHeaders: undefined });
    lifetime.responseHeaders = headers;
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

  /** Throws 429 if no tokens are left in the window of the key or its team. */
  async #assertTokensLeft(key: ApiKeyRecord): Promise<void> {
    for (const { id, rateLimitTpm, limited } of tokenLimitsOf(key)) {
      if ((await this.#dependencies.rates.remaining(tokenWindow(id), rateLimitTpm)) > 0) continue;
      throw new GatewayError(
        "rate_limit_exceeded",
        `${limited} has used its ${rateLimitTpm} tokens a minute, so the request body was not read.`,
        { retryAfterSeconds: 1 },
      );
    }
  }

  /**
   * Returns the fee of each endpoint that can serve the request. On the BYOK plan the provider bills the
   * organization directly, which needs a provider key. Throws 402 if the organization has no key for any of
   * the endpoints.
   */
  fees(caller: Caller, endpoints: readonly ServingEndpoint[]): Fees | Promise<Fees> {
    const organization = this.#dependencies.organizations.get(caller.key.organizationId);
    if (!organization.isActive)
      return organization.activate().then(() => this.fees(caller, endpoints));
    const terms: FeeTerms | undefined = organization.turn("terms", undefined);
    if (terms === undefined) throw invalidKey();
    if (terms.plan === "byok") assertByokKeys(endpoints);
    const planFee = feeOfTerms(terms);
    return {
      of: ({ byokKeyId }) => (byokKeyId === undefined ? planFee : 0n),
      serves: terms.plan === "byok" ? isByokEndpoint : undefined,
      highest: planFee,
    };
  }

  /**
   * Returns the team, the owner, the end user and the tags of a request that have budgets. Returns them without a
   * promise if they are cached.
   */
  subjectsOf({ key }: Caller, fields: SubjectFields): ReturnType<BudgetSubjects["of"]> {
    const named = this.#dependencies.budgetSubjects.of(key.organizationId, fields);
    const { ownerBudgets } = key;
    if (ownerBudgets === undefined) return named;
    return named instanceof Promise
      ? named.then((subjects = []) => [...ownerBudgets, ...subjects])
      : [...ownerBudgets, ...(named ?? [])];
  }

  /**
   * Holds the maximum cost of the request at the most expensive endpoint, so that one hold covers every
   * fallback. Throws 402 if too little is available.
   *
   * @param mostUnits the reduced limit of output units
   */
  hold(
    { caller: { key }, requestId }: RateSubject,
    { bounds, byok }: HoldBounds,
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
    return byok.length === 0
      ? money.hold(request)
      : money.hold({ ...request, budget: withByokBudget(request, byok) });
  }

  /**
   * Holds money for a job that outlives this process, in one transaction with `also`. Throws 402 if too little
   * is available.
   */
  holdLong(request: LongHoldRequest, also: StatementEffect): Promise<void> {
    return this.#dependencies.money.holdLong(request, also);
  }
}

/**
 * Returns the request with a budget amount. For each part it is the charge with fee or the provider's bill to
 * the organization, whichever is higher.
 */
function withByokBudget(request: HoldRequest, byok: readonly CostBound[]): HoldRequest {
  const withFee = (femto: ExactInteger): bigint =>
    (BigInt(femto) * (BASIS_POINTS + request.feeBasisPoints) + BASIS_POINTS - 1n) / BASIS_POINTS;
  const highest = highestBound(byok);
  const most = (femto: ExactInteger, byokFemto: ExactInteger): bigint => {
    const operatorFemto = withFee(femto);
    return operatorFemto > BigInt(byokFemto) ? operatorFemto : BigInt(byokFemto);
  };
  return {
    ...request,
    fixedFemto: most(request.fixedFemto, highest.fixedFemto),
    perTokenFemto: most(request.perTokenFemto, highest.perUnitFemto),
    feeBasisPoints: 0n,
  };
}

/** Returns the highest of each part, so that one hold covers the whole chain of fallbacks. */
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

function isByokEndpoint({ providerId, byokKeyId }: ServingEndpoint): boolean {
  return byokKeyId !== undefined || providerId === KEYLESS_PROVIDER;
}

function assertByokKeys(endpoints: readonly ServingEndpoint[]): void {
  const [withoutKey] = endpoints;
  if (withoutKey === undefined || endpoints.some(isByokEndpoint)) return;
  throw new GatewayError(
    "insufficient_credits",
    `The organization's plan is BYOK, and it has no provider key for this request at ${withoutKey.providerId}.`,
  );
}

/** Returns the rate limit headers. Throws 429 if the request is not admitted. */
function admittedHeaders(decision: RateDecision, clock: Clock, limited: string): RateHeaders {
  const headers = rateHeaders(decision, clock);
  if (decision.isAdmitted) return headers;
  throw new GatewayError(
    "rate_limit_exceeded",
    `${limited} is limited to ${decision.limit} requests a minute.`,
    // The client needs at least one millisecond to send the next request.
    { retryAfterSeconds: (decision.retryAfterMs - 1) / 1_000, headers },
  );
}

/** Returns the headers under the specification's names and under the names that OpenAI's clients read. */
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

function remainingOf(headers: RateHeaders): number {
  return Number(headers["x-ratelimit-remaining"] ?? Number.POSITIVE_INFINITY);
}

/** Returns the beginning of a message about the limit of a team. */
function nameOfTeam({ name }: TeamLimits): string {
  return `The team ${JSON.stringify(name)} of this API key`;
}

/** Returns true if requests of the key are counted in tokens. */
export function hasTokenLimit(key: ApiKeyRecord): boolean {
  return key.rateLimitTpm !== null || (key.team !== undefined && key.team.rateLimitTpm !== null);
}

/** Returns the token limits of a key and its team. */
function tokenLimitsOf({ id, rateLimitTpm, team }: ApiKeyRecord): TokenLimit[] {
  const limits = [{ id, rateLimitTpm, limited: THIS_KEY }];
  if (team !== undefined) limits.push({ ...team, limited: nameOfTeam(team) });
  return limits.flatMap(({ rateLimitTpm: limit, ...of }) =>
    limit === null ? [] : [{ ...of, rateLimitTpm: limit }],
  );
}

function invalidKey(): GatewayError {
  return new GatewayError("invalid_api_key", "The API key is not valid.");
}

type UsedUpPeriod = Omit<PeriodHeadroom, "availableNano">;

/** Returns undefined if the period has no budget, or if part of it is left. */
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

/**
 * Throws 402 if no credit is left. On the `byok` plan calls are not charged here, because providers bill the
 * organization directly.
 */
function assertCredit({ plan, balanceNano, creditLimitNano }: MoneyLeft): void {
  if (plan === "byok" || creditLimitNano === null || balanceNano + creditLimitNano > 0n) return;
  throw new GatewayError(
    "insufficient_credits",
    "The organization's credits are used up, so the request body was not read.",
  );
}
