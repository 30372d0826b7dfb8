import { money } from "../../format.ts";

/** A plan in the answer of GET /dashboard/api/settings/plans. */
export interface ListedPlan {
  readonly plan: string;
  readonly fee_percent: number;
  readonly file_quota_bytes: number;
  readonly is_paid: boolean;
}

export interface OfferedPlan extends ListedPlan {
  /**
   * The price. Undefined while it is loading. Null if the plan has no price or the payment processor does not
   * return it.
   */
  readonly price: PlanPrice | null | undefined;
}

export interface PlanPrice {
  readonly amount: number;
  readonly currency: string;
  readonly interval: string;
  readonly interval_count: number;
}

/** The answer of GET /v1/billing/subscription. */
export interface Subscription {
  readonly plan: string;
  readonly platform_fee_percent: number;
  readonly current_period_start: string;
  readonly current_period_end: string;
  readonly usage_this_period_usd: number;
  readonly next_plan: string | null;
  readonly payment_status: "pending" | "open" | "active" | "unpaid" | "ending" | null;
  readonly payment_url: string | null;
  readonly invoice_url: string | null;
}

const TITLES: Readonly<Record<string, string>> = {
  free: "Free",
  pro: "Pro",
  byok: "BYOK",
  enterprise: "Enterprise",
};

export function planTitle(plan: string): string {
  return TITLES[plan] ?? plan;
}

/** Returns a price such as "$20.00 a month". */
export function priceText({
  amount,
  currency,
  interval,
  interval_count: count,
}: PlanPrice): string {
  const each = count === 1 ? `a ${interval}` : `every ${count} ${interval}s`;
  return `${money(amount, currency)} ${each}`;
}

/** Returns true if the plan is currently paid. */
export function isPaidNow({ plan, payment_status: status }: Subscription): boolean {
  return plan === "pro" && status === "active";
}

/** Returns true if an operator has set a plan that the organization cannot leave by itself. */
export function isOperators(subscription: Subscription): boolean {
  const { plan } = subscription;
  return plan !== "free" && plan !== "byok" && !isPaidNow(subscription);
}
