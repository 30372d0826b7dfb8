import type { ApiKeyActors } from "../../actors/api-key/actor.ts";
import type { KeyHeadroom, PeriodHeadroom } from "../../actors/api-key/state.ts";
import { type OrganizationHeadroom, UNLIMITED_NANO } from "../../actors/organization/state.ts";
import type { AccountHeadroom, HoldDemand, HoldVerdict } from "../../db/ledger/rows.ts";
import { GatewayError } from "../lib/errors.ts";
import { usdText } from "../lib/money.ts";
import { isoTime, utcDay, utcMonth } from "../lib/utc-time.ts";
import { affordableTokens, budgetOf, decideHold, leastHold } from "./decide-hold.ts";
import type { Hold, HoldRequest } from "./interface.ts";

/** Everything that limits one request: the balance, and the budgets of its key. */
export interface Headroom {
  readonly key: KeyHeadroom;
  readonly organization: Pick<OrganizationHeadroom, "unspentNano" | "freeNano">;
}

/** What the tightest budget leaves free, holds counted; undefined where there is none. */
function freeOfBudgets({ key }: Headroom): bigint | undefined {
  let free: bigint | undefined;
  for (const { freeNano } of key.limits) if (free === undefined || freeNano < free) free = freeNano;
  return free;
}

/** What is held where the headroom allows it; undefined where it does not. */
export function decideAmounts(
  request: HoldRequest,
  headroom: Headroom,
): Pick<Hold, "holdNano" | "budgetNano" | "outputTokens"> | undefined {
  const { freeNano } = headroom.organization;
  const budgetFree = freeOfBudgets(headroom) ?? UNLIMITED_NANO;
  if (request.budget === undefined) {
    const decision = decideHold(request, freeNano < budgetFree ? freeNano : budgetFree);
    return decision.isHeld ? { ...decision, budgetNano: undefined } : undefined;
  }
  const ofBalance = decideHold(request, freeNano);
  const ofBudget = decideHold(request.budget, budgetFree);
  if (!ofBalance.isHeld || !ofBudget.isHeld) return undefined;
  return {
    holdNano: ofBalance.holdNano,
    budgetNano: ofBudget.holdNano,
    outputTokens: Math.min(ofBalance.outputTokens, ofBudget.outputTokens),
  };
}

/** Output tokens that balance and budgets pay for. */
function affordable(request: HoldRequest, headroom: Headroom): number {
  const ofBudget = affordableTokens(budgetOf(request), freeOfBudgets(headroom) ?? UNLIMITED_NANO);
  return Math.max(0, Math.min(affordableTokens(request, headroom.organization.freeNano), ofBudget));
}

/** The periods in which the request would be refused even if nothing were held. */
function shortPeriods(headroom: Headroom, request: HoldRequest): PeriodHeadroom[] {
  const ofBudget = budgetOf(request);
  return headroom.key.limits.filter((limit) => !decideHold(ofBudget, limit.unspentNano).isHeld);
}

/**
 * The periods whose spend refuses the request, so that their budgets count as reached. One
 * that is larger than the whole budget is refused whatever was spent, and reaches nothing.
 */
function exhaustedPeriods(headroom: Headroom, request: HoldRequest): PeriodHeadroom[] {
  const ofBudget = budgetOf(request);
  return shortPeriods(headroom, request).filter(
    ({ budgetNano }) => budgetNano === 0n || decideHold(ofBudget, budgetNano).isHeld,
  );
}

/** True where the request would be refused even if nothing were held: waiting cannot help. */
export function isShortBySpend(headroom: Headroom, request: HoldRequest): boolean {
  return (
    !decideHold(request, headroom.organization.unspentNano).isHeld ||
    shortPeriods(headroom, request).length > 0
  );
}

/** The 402 of a request, which says what is missing, what would help, and what would have been affordable. */
export function refusal(headroom: Headroom, request: HoldRequest): GatewayError {
  const ofBudget = budgetOf(request);
  const tightest = headroom.key.limits.find(
    (limit) => !decideHold(ofBudget, limit.freeNano).isHeld,
  );
  const tokens = affordable(request, headroom);
  const afford =
    request.outputTokens === 0
      ? ""
      : tokens > 0
        ? ` At most ${tokens} output tokens would have been affordable; set max_tokens accordingly.`
        : " No output tokens would have been affordable.";
  if (tightest !== undefined) {
    const period = tightest.kind === "day" ? "daily" : "monthly";
    return new GatewayError(
      "budget_exhausted",
      `The ${period} budget of this API key does not cover this request: ${usdText(positive(tightest.freeNano))} USD is left. ${budgetRemedy(tightest, ofBudget)}${afford}`,
    );
  }
  const { freeNano: free, unspentNano } = headroom.organization;
  const remedy = decideHold(request, unspentNano).isHeld
    ? `${missing(request, free)}: top up, or try again when running requests have ended.`
    : `${missing(request, free)}: top up the organization's credits.`;
  return new GatewayError(
    "insufficient_credits",
    `The organization's credits do not cover this request: ${usdText(positive(free))} USD is available. ${remedy}${afford}`,
  );
}

function budgetRemedy(limit: PeriodHeadroom, request: HoldRequest): string {
  const lacks = missing(request, limit.freeNano);
  if (decideHold(request, limit.unspentNano).isHeld) {
    return `${lacks}: raise the budget, or try again when running requests have ended.`;
  }
  // A new period does not help what is larger than the whole budget.
  if (!decideHold(request, limit.budgetNano).isHeld) return `${lacks}: raise the budget.`;
  const startMs = Date.parse(limit.periodStart);
  const { endMs } = limit.kind === "day" ? utcDay(startMs) : utcMonth(startMs);
  return `${lacks}: raise the budget, or wait until it renews at ${isoTime(endMs)}.`;
}

/** What the least hold that will do takes beyond what is free. */
function missing(request: HoldRequest, free: bigint): string {
  return `${usdText(positive(leastHold(request) - positive(free)))} USD more is needed`;
}

/** The key was deleted or switched off between its authentication and its hold. */
export function revoked({ key }: Headroom): GatewayError {
  return key.isActive === undefined
    ? new GatewayError("invalid_api_key", "The API key is not valid.")
    : new GatewayError("key_inactive", "This API key is switched off.");
}

function positive(nano: bigint): bigint {
  return nano < 0n ? 0n : nano;
}

const UNLIMITED = { unspentNano: UNLIMITED_NANO, freeNano: UNLIMITED_NANO };

/** What the database saw when it refused a hold, as the refusal is worked out from it. */
export function headroomOf(
  demand: HoldDemand,
  verdict: Extract<HoldVerdict, { kind: "short" }>,
): Headroom {
  const { organization, day, month } = verdict;
  const limits: PeriodHeadroom[] = [];
  if (day) limits.push(periodHeadroom("day", demand.dayAccount, day));
  if (month) limits.push(periodHeadroom("month", demand.monthAccount, month));
  return {
    key: keyHeadroom(demand, true, limits),
    organization: organization ?? UNLIMITED,
  };
}

/** The same where the key does not count any more. */
export function revokedHeadroom(demand: HoldDemand, isActive: false | undefined): Headroom {
  return {
    key: keyHeadroom(demand, isActive, []),
    organization: { unspentNano: 0n, freeNano: 0n },
  };
}

function keyHeadroom(
  { dayAccount, monthAccount }: HoldDemand,
  isActive: boolean | undefined,
  limits: readonly PeriodHeadroom[],
): KeyHeadroom {
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
    unspentNano: room.unspentNano,
    freeNano: room.freeNano,
  };
}

/**
 * Emits budget.exhausted for the periods whose spend alone refuses the request, once each. If that fails the
 * request is still refused, and the next refusal emits it.
 */
export async function tellExhausted(
  { keys, onBackgroundError }: { keys: ApiKeyActors; onBackgroundError(error: unknown): void },
  request: HoldRequest,
  headroom: Headroom,
): Promise<void> {
  const periods = exhaustedPeriods(headroom, request).map((period) => ({
    id: period.accountId,
    kind: period.kind,
    organizationId: request.organizationId,
    keyId: request.keyId,
    periodStart: period.periodStart,
  }));
  if (periods.length === 0) return;
  try {
    await keys.get(request.keyId).ask("exhausted", periods);
  } catch (error) {
    onBackgroundError(error);
  }
}
