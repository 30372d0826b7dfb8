import { findMoneyLeft, type MoneyLeft } from "../../db/queries/money-left.ts";
import type { Query } from "../../db/query.ts";
import type { RateWindows } from "../cluster/interface.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { utcDay, utcMonth } from "../lib/periods.ts";
import type { RequestFacts } from "../lib/request-facts.ts";
import { type RateHeaders, takeRate } from "./admit.ts";
import type { Caller } from "./caller.ts";

export interface LongBodyDependencies {
  readonly rates: RateWindows;
  readonly clock: Clock;
  read<Result>(query: Query<Result>): Promise<Result>;
}

/**
 * Decides from the head of a request whether its long body is read: only of a key that has rate and money
 * left. It takes its place in the rate window now, whether or not the body turns out to be valid, so that
 * reading and parsing are bounded by the rate; the admission that follows takes no second one. Running holds
 * are left aside: they may end before the body has come.
 */
export class LongBodyAdmission {
  readonly #dependencies: LongBodyDependencies;

  constructor(dependencies: LongBodyDependencies) {
    this.#dependencies = dependencies;
  }

  /** The headers of the rate window, which are noted for every answer too. Throws 429, 402, 503. */
  async admit(caller: Caller, log: RequestFacts): Promise<RateHeaders> {
    const { rates, clock, read } = this.#dependencies;
    const { key } = caller;
    const headers = await takeRate(rates, caller);
    log.headers = headers;
    const nowMs = clock.nowMs();
    const [day, month] = [utcDay(nowMs).start, utcMonth(nowMs).start];
    const left = await read(findMoneyLeft(key.organizationId, key.id, day, month));
    if (left === undefined) throw new GatewayError("invalid_api_key", "The API key is not valid.");
    assertBudget("daily", key.dailyBudgetNano, left.spentTodayNano);
    assertBudget("monthly", key.monthlyBudgetNano, left.spentThisMonthNano);
    assertCredit(left);
    return headers;
  }
}

function assertBudget(period: string, budgetNano: bigint | null, spentNano: bigint): void {
  if (budgetNano === null || spentNano < budgetNano) return;
  throw new GatewayError(
    "budget_exhausted",
    `The ${period} budget of this API key is used up, so its request body was not read.`,
  );
}

/** Calls with the organization's own provider keys, which the plan `byok` is for, are not charged here. */
function assertCredit({ plan, balanceNano, creditLimitNano }: MoneyLeft): void {
  if (plan === "byok" || creditLimitNano === null || balanceNano + creditLimitNano > 0n) return;
  throw new GatewayError(
    "insufficient_credits",
    "The organization's credits are used up, so the request body was not read.",
  );
}
