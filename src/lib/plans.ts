export const PLANS = ["free", "pro", "byok", "enterprise"] as const;
export type PlanName = (typeof PLANS)[number];

interface Plan {
  /** The platform fee on top of provider cost (spec 1). */
  readonly feeBasisPoints: bigint;
  /** What an organization may store (spec 8). */
  readonly fileQuotaBytes: number;
  /** How far the balance of a new organization may go below zero, in nano-USD; null is without limit. */
  readonly creditLimitNano: bigint | null;
  readonly billingPeriod: "monthly";
  /** `self`: chosen by organizations. `paid`: so too, where it is sold. `operator`: set by operators alone. */
  readonly chosenBy: "self" | "paid" | "operator";
}

const GIGABYTE = 1024 ** 3;
const PREPAID = { creditLimitNano: 0n, billingPeriod: "monthly" } as const;

/** What each plan brings. Operators can set another fee, quota and credit limit for any organization. */
const PLAN_TABLE: Readonly<Record<PlanName, Plan>> = {
  free: {
    ...PREPAID,
    feeBasisPoints: 400n,
    fileQuotaBytes: 100 * GIGABYTE,
    chosenBy: "self",
  },
  pro: {
    ...PREPAID,
    feeBasisPoints: 250n,
    fileQuotaBytes: 1024 * GIGABYTE,
    chosenBy: "paid",
  },
  byok: {
    ...PREPAID,
    feeBasisPoints: 0n,
    fileQuotaBytes: 100 * GIGABYTE,
    chosenBy: "self",
  },
  enterprise: {
    feeBasisPoints: 0n,
    fileQuotaBytes: 1024 * GIGABYTE,
    creditLimitNano: null,
    billingPeriod: "monthly",
    chosenBy: "operator",
  },
};

export function planOf(name: string): Plan {
  if (Object.hasOwn(PLAN_TABLE, name)) return PLAN_TABLE[name as PlanName];
  throw new Error(`unknown plan ${name}`);
}

/** What an organization is charged: a fee of its own, or that of its plan. */
export interface FeeTerms {
  readonly plan: string;
  readonly feeBasisPoints?: bigint | undefined;
}

export function feeOfTerms({ plan, feeBasisPoints }: FeeTerms): bigint {
  return feeBasisPoints ?? planOf(plan).feeBasisPoints;
}

const BASIS_POINTS_PER_PERCENT = 100;

/** The same for those who look at it. */
export function feePercentOf(terms: {
  readonly plan: string;
  readonly feeBasisPoints: bigint | number | null;
}): number {
  const basisPoints = terms.feeBasisPoints ?? planOf(terms.plan).feeBasisPoints;
  return Number(basisPoints) / BASIS_POINTS_PER_PERCENT;
}

/** What an organization may store: a quota of its own, or that of its plan. */
export function fileQuotaOf(terms: {
  readonly plan: string;
  readonly fileQuotaBytes: number | null;
}): number {
  return terms.fileQuotaBytes ?? planOf(terms.plan).fileQuotaBytes;
}
