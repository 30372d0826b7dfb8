import type { ApiKeyActors } from "../../../actors/api-key/actor.ts";
import type { PeriodHeadroom, SpenderHeadroom } from "../../../actors/budget-periods/state.ts";
import { type OrganizationHeadroom, UNLIMITED_NANO } from "../../../actors/organization/state.ts";
import type { SubjectBudgetActors } from "../../../actors/subject-budget/actor.ts";
import type { AccountHeadroom, HoldDemand, HoldVerdict } from "../../../db/ledger/rows.ts";
import { GatewayError } from "../../lib/errors.ts";
import { usdText } from "../../lib/money.ts";
import { isoTime, utcDay, utcMonth } from "../../lib/utc-time.ts";
import { affordableTokens, budgetOf, decideHold, leastHold } from "./decide-hold.ts";
import type { Shortage } from "./hold-wait-queue.ts";
import type { BudgetSubject, Hold, HoldRequest } from "./interface.ts";

/** All limits of one request: the balance, and the budgets of its key and its subjects. */
export interface Headroom {
  readonly key: SpenderHeadroom;
  readonly subjects: readonly SubjectHeadroom[];
  readonly organization: Pick<OrganizationHeadroom, "remainingNano" | "availableNano">;
}

interface SubjectHeadroom extends Pick<SpenderHeadroom, "limits"> {
  readonly subject: BudgetSubject;
}

interface Limit {
  readonly period: PeriodHeadroom;
  /** Undefined if it is a budget of the key. */
  readonly subject: BudgetSubject | undefined;
}

/** Returns all budget limits, the key's first. */
function limitsOf({ key, subjects }: Headroom): Limit[] {
  const limits: Limit[] = key.limits.map((period) => ({ period, subject: undefined }));
  for (const { subject, limits: periods } of subjects) {
    for (const period of periods) limits.push({ period, subject });
  }
  return limits;
}

/** Returns the available amount of the tightest budget, after holds. Returns undefined if there is no budget. */
function availableInBudgets(headroom: Headroom): bigint | undefined {
  let free: bigint | undefined;
  for (const { period } of limitsOf(headroom)) {
    if (free === undefined || period.availableNano < free) free = period.availableNano;
  }
  return free;
}

/** Returns the first budget limit that does not cover the request. */
function tightestOf(headroom: Headroom, request: HoldRequest): Limit | undefined {
  const ofBudget = budgetOf(request);
  return limitsOf(headroom).find(
    ({ period }) => !decideHold(ofBudget, period.availableNano).isHeld,
  );
}

/** Returns the reason that a request waits if only holds block it. */
export function findShortage(headroom: Headroom, request: HoldRequest): Shortage {
  if (!decideHold(request, headroom.organization.availableNano).isHeld) return "organization";
  return tightestOf(headroom, request)?.subject === undefined ? "key" : "subject";
}

/** Returns the amounts to hold, or undefined if the headroom is too small. */
export function decideAmounts(
  request: HoldRequest,
  headroom: Headroom,
): Pick<Hold, "holdNano" | "budgetNano" | "outputTokens"> | undefined {
  const { availableNano } = headroom.organization;
  const budgetFree = availableInBudgets(headroom) ?? UNLIMITED_NANO;
  if (request.budget === undefined) {
    const decision = decideHold(request, availableNano < budgetFree ? availableNano : budgetFree);
    return decision.isHeld ? { ...decision, budgetNano: undefined } : undefined;
  }
  const ofBalance = decideHold(request, availableNano);
  const ofBudget = decideHold(request.budget, budgetFree);
  if (!ofBalance.isHeld || !ofBudget.isHeld) return undefined;
  return {
    holdNano: ofBalance.holdNano,
    budgetNano: ofBudget.holdNano,
    outputTokens: Math.min(ofBalance.outputTokens, ofBudget.outputTokens),
  };
}

/** Returns the output tokens that balance and budgets pay for. */
function affordable(request: HoldRequest, headroom: Headroom): number {
  const ofBudget = affordableTokens(
    budgetOf(request),
    availableInBudgets(headroom) ?? UNLIMITED_NANO,
  );
  return Math.max(
    0,
    Math.min(affordableTokens(request, headroom.organization.availableNano), ofBudget),
  );
}

/** Returns true if the period would not cover the request even without holds. */
function isShortPeriod({ remainingNano }: PeriodHeadroom, request: HoldRequest): boolean {
  return !decideHold(budgetOf(request), remainingNano).isHeld;
}

/**
 * Returns the periods among these whose budgets cause the 402 of a request. These have too little left after spend or, if no
 * limit has too little after spend, after spend and holds.
 *
 * Returns none if the request exceeds a whole budget that is not exhausted: the request's size then causes the
 * 402.
 */
function refusingPeriods(
  limits: readonly PeriodHeadroom[],
  headroom: Headroom,
  request: HoldRequest,
): PeriodHeadroom[] {
  const ofBudget = budgetOf(request);
  const isTooLarge = limits.some(
    ({ budgetNano, remainingNano }) =>
      remainingNano > 0n && !decideHold(ofBudget, budgetNano).isHeld,
  );
  if (isTooLarge) return [];
  if (isShortBySpend(headroom, request)) {
    return limits.filter((period) => isShortPeriod(period, request));
  }
  return limits.filter(({ availableNano }) => !decideHold(ofBudget, availableNano).isHeld);
}

/** Returns true if the request would be rejected even without holds, so that waiting cannot help. */
export function isShortBySpend(headroom: Headroom, request: HoldRequest): boolean {
  return (
    !decideHold(request, headroom.organization.remainingNano).isHeld ||
    limitsOf(headroom).some(({ period }) => isShortPeriod(period, request))
  );
}

/** Returns the 402 error of a request. It states the shortage, a remedy, and the affordable output tokens. */
export function refusal(headroom: Headroom, request: HoldRequest): GatewayError {
  const tightest = tightestOf(headroom, request);
  const tokens = affordable(request, headroom);
  const afford =
    request.outputTokens === 0
      ? ""
      : tokens > 0
        ? ` At most ${tokens} output tokens would have been affordable; set max_tokens accordingly.`
        : " No output tokens would have been affordable.";
  if (tightest !== undefined) {
    const { period, subject } = tightest;
    const kind = period.kind === "day" ? "daily" : "monthly";
    const whose = subject === undefined ? "this API key" : nameOf(subject);
    const id = subject === undefined ? request.keyId : subject.value;
    return new GatewayError(
      "budget_exhausted",
      `The ${kind} budget of ${whose} does not cover this request: ${usdText(positive(period.availableNano))} USD is left. ${budgetRemedy(period, budgetOf(request))}${afford}`,
      { fields: { subject: { type: subject?.type ?? "key", id } } },
    );
  }
  const { availableNano: free, remainingNano } = headroom.organization;
  const remedy = decideHold(request, remainingNano).isHeld
    ? `${missing(request, free)}: top up, or try again when running requests have ended.`
    : `${missing(request, free)}: top up the organization's credits.`;
  return new GatewayError(
    "insufficient_credits",
    `The organization's credits do not cover this request: ${usdText(positive(free))} USD is available. ${remedy}${afford}`,
  );
}

function nameOf({ type, value }: BudgetSubject): string {
  return `the ${type} ${JSON.stringify(value)}`;
}

function budgetRemedy(limit: PeriodHeadroom, request: HoldRequest): string {
  const shortfall = missing(request, limit.availableNano);
  if (decideHold(request, limit.remainingNano).isHeld) {
    return `${shortfall}: raise the budget, or try again when running requests have ended.`;
  }
  // A new period does not help if the request exceeds the whole budget.
  if (!decideHold(request, limit.budgetNano).isHeld) return `${shortfall}: raise the budget.`;
  const startMs = Date.parse(limit.periodStart);
  const { endMs } = limit.kind === "day" ? utcDay(startMs) : utcMonth(startMs);
  return `${shortfall}: raise the budget, or wait until it renews at ${isoTime(endMs)}.`;
}

/** Returns a text with the amount that the smallest sufficient hold needs beyond the available amount. */
function missing(request: HoldRequest, free: bigint): string {
  return `${usdText(positive(leastHold(request) - positive(free)))} USD more is needed`;
}

/** Returns the error for a key that was deleted or deactivated between its authentication and its hold. */
export function revoked({ key }: Headroom): GatewayError {
  return key.isActive === undefined
    ? new GatewayError("invalid_api_key", "The API key is not valid.")
    : new GatewayError("key_inactive", "This API key is inactive.");
}

function positive(nano: bigint): bigint {
  return nano < 0n ? 0n : nano;
}

const UNLIMITED = { remainingNano: UNLIMITED_NANO, availableNano: UNLIMITED_NANO };

/** Returns the headroom that the database reported when it rejected a hold. */
export function headroomOf(
  { subjects = [] }: HoldRequest,
  demand: HoldDemand,
  verdict: Extract<HoldVerdict, { kind: "short" }>,
): Headroom {
  const { organization, day, month } = verdict;
  const accounts = demand.subjectAccounts ?? [];
  const limitsAt = (at: number): PeriodHeadroom[] =>
    periodsOf([accounts[at]!, accounts[at + 1]!], [verdict.subjects[at], verdict.subjects[at + 1]]);
  const limits = periodsOf([demand.dayAccount, demand.monthAccount], [day, month]);
  return {
    key: keyHeadroom(demand, true, limits),
    subjects: subjects.map((subject, index) => ({ subject, limits: limitsAt(2 * index) })),
    organization: organization ?? UNLIMITED,
  };
}

/** Returns the headroom of a day and a month, if they have budgets. */
function periodsOf(
  [dayAccount, monthAccount]: readonly [string, string],
  [day, month]: readonly (AccountHeadroom | undefined)[],
): PeriodHeadroom[] {
  const periods: PeriodHeadroom[] = [];
  if (day) periods.push(periodHeadroom("day", dayAccount, day));
  if (month) periods.push(periodHeadroom("month", monthAccount, month));
  return periods;
}

/** Returns the headroom of a key that is no longer valid. */
export function revokedHeadroom(demand: HoldDemand, isActive: false | undefined): Headroom {
  return {
    key: keyHeadroom(demand, isActive, []),
    subjects: [],
    organization: { remainingNano: 0n, availableNano: 0n },
  };
}

function keyHeadroom(
  { dayAccount, monthAccount }: HoldDemand,
  isActive: boolean | undefined,
  limits: readonly PeriodHeadroom[],
): SpenderHeadroom {
  return { isActive, dayAccount, monthAccount, limits };
}

function periodHeadroom(
  kind: "day" | "month",
  accountId: string,
  room: AccountHeadroom,
): PeriodHeadroom {
  return {
    accountId,
    kind,
    periodStart: accountId.slice(accountId.lastIndexOf(":") + 1),
    budgetNano: room.limitNano,
    remainingNano: room.remainingNano,
    availableNano: room.availableNano,
  };
}

/** Emits budget.exhausted once for each period that rejects the request, before its 402 is sent. */
export async function emitExhausted(
  dependencies: EmittingDependencies,
  request: HoldRequest,
  headroom: Headroom,
): Promise<void> {
  const refusing = (limits: readonly PeriodHeadroom[]) =>
    refusingPeriods(limits, headroom, request);
  await emitExhaustedOf(dependencies, request, refusing(headroom.key.limits));
  for (const { subject, limits } of headroom.subjects) {
    const { organizationId } = request;
    const { budgetId } = subject;
    await emitExhaustedOf(dependencies, { organizationId, budgetId }, refusing(limits));
  }
}

export interface EmittingDependencies {
  readonly keys: ApiKeyActors;
  readonly subjectBudgets: SubjectBudgetActors;
  onBackgroundError(error: unknown): void;
}

/**
 * Emits budget.exhausted once for each of these periods of a key or a budget. If that fails, the request is still rejected,
 * and the next 402 emits it.
 */
export async function emitExhaustedOf(
  { keys, subjectBudgets, onBackgroundError }: EmittingDependencies,
  {
    organizationId,
    keyId = "",
    budgetId,
  }: { readonly organizationId: string; readonly keyId?: string; readonly budgetId?: string },
  limits: readonly Omit<PeriodHeadroom, "availableNano">[],
): Promise<void> {
  if (limits.length === 0) return;
  const periods = limits.map(({ accountId, kind, periodStart, budgetNano, remainingNano }) => ({
    id: accountId,
    kind,
    organizationId,
    ...(budgetId === undefined ? { keyId } : { budgetId }),
    periodStart,
    isNearlySpent: remainingNano <= budgetNano / 20n,
  }));
  try {
    if (budgetId === undefined) await keys.get(keyId).ask("exhausted", periods);
    else await subjectBudgets.get(budgetId).ask("exhausted", periods);
  } catch (error) {
    onBackgroundError(error);
  }
}
