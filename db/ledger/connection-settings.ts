/**
 * A commit is the same few statements again and again: planning them anew costs more than running them.
 * A plan that is kept must not be one that was made for empty tables, so it takes indexes throughout.
 */
export const LEDGER_SETTINGS: Record<string, string> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_mergejoin: "off",
  jit: "off",
};
