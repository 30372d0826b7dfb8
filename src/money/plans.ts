/** The platform fee on top of provider cost, by plan (spec 1), in basis points. */
const FEE_BASIS_POINTS: Readonly<Record<string, bigint>> = {
  free: 400n,
  pro: 250n,
  byok: 0n,
  enterprise: 0n,
};

/** What an organization is charged: a fee of its own, or that of its plan. */
export interface FeeTerms {
  readonly plan: string;
  readonly feeBasisPoints?: bigint | undefined;
}

export function feeOfTerms({ plan, feeBasisPoints }: FeeTerms): bigint {
  return feeBasisPoints ?? planFeeBasisPoints(plan);
}

export function planFeeBasisPoints(plan: string): bigint {
  const fee = FEE_BASIS_POINTS[plan];
  if (fee === undefined) throw new Error(`unknown plan ${plan}`);
  return fee;
}

/**
 * How far below zero the balance of a new organization on this plan may go, in nano-USD; null is without
 * limit. The operator can set another limit for any organization.
 */
export function initialCreditLimitNano(plan: string): bigint | null {
  return plan === "enterprise" ? null : 0n;
}
