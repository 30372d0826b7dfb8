/**
 * A commit repeats the same few statements: planning them each time costs more than running them.
 * A plan that is kept must not be one that was made for empty tables, so it takes indexes throughout.
 */
export const LEDGER_SETTINGS: Record<string, string> = {
  plan_cache_mode: "force_generic_plan",
  enable_seqscan: "off",
  enable_mergejoin: "off",
  jit: "off",
};

/**
 * With other instances, none may keep what the others wait for: one that is paused in the middle of a
 * transaction loses it, and one that waits for a lock lets go of its own row now and then, so that its
 * heartbeat comes through. Both try again. Milliseconds.
 */
export const SHARED_LEDGER_SETTINGS: Record<string, string> = {
  ...LEDGER_SETTINGS,
  idle_in_transaction_session_timeout: "1000",
  lock_timeout: "1000",
};
