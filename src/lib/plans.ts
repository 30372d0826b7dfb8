export const PLANS = ["free", "pro", "byok", "enterprise"] as const;
export type PlanName = (typeof PLANS)[number];

interface Plan {
  /** The platform fee on top of provider cost (spec 1). */
  readonly feeBasisPoints: bigint;
  /** Storage quota for files in bytes (spec 8). */
  readonly fileQuotaBytes: number;
  /**
   * Credit limit of a new organization in nano-USD: the amount by which its balance can go below zero. Null means
   * no limit.
   */
  readonly creditLimitNano: bigint | null;
  readonly billingPeriod: "monthly";
  /**
   * `self`: organizations choose it. `paid`: organizations choose it, if it is on sale. `operator`: only
   * operators set it.
   */
  readonly chosenBy: "self" | "paid" | "operator";
}

const GIGABYTE = 1024 ** 3;
const PREPAID = { creditLimitNano: 0n, billingPeriod: "monthly" } as const;

/** The plans. Operators can set another fee, quota and credit limit for any organization. */
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

/** The fee of an organization: a custom fee, or the fee of its plan. */
export interface FeeTerms {
  readonly plan: string;
  readonly feeBasisPoints?: bigint | undefined;
}

export function feeOfTerms({ plan, feeBasisPoints }: FeeTerms): bigint {
  return feeBasisPoints ?? planOf(plan).feeBasisPoints;
}

const BASIS_POINTS_PER_PERCENT = 100;

/** Returns the fee in percent, for display. */
export function feePercentOf(terms: {
  readonly plan: string;
  readonly feeBasisPoints: bigint | number | null;
}): number {
  const basisPoints = terms.feeBasisPoints ?? planOf(terms.plan).feeBasisPoints;
  return Number(basisPoints) / BASIS_POINTS_PER_PERCENT;
}

/** Returns the storage quota of an organization: a custom quota, or the quota of its plan. */
export function fileQuotaOf(terms: {
  readonly plan: string;
  readonly fileQuotaBytes: number | null;
}): number {
  return terms.fileQuotaBytes ?? planOf(terms.plan).fileQuotaBytes;
}
