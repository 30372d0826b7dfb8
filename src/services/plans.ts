/** The platform fee on top of provider cost, by plan (spec 1), in basis points. */
const FEE_BASIS_POINTS: Readonly<Record<string, bigint>> = { free: 400n, pro: 250n, byok: 0n };

export function feeBasisPoints(plan: string): bigint {
  const fee = FEE_BASIS_POINTS[plan];
  if (fee === undefined) throw new Error(`unknown plan ${plan}`);
  return fee;
}
