import type { SeededRandom } from "./seeded-random.ts";

/** What goes wrong in a schedule, and how often. */
export interface FaultPlan {
  readonly isQuiet: boolean;
  readonly kills: number;
  readonly pauses: number;
  readonly partings: number;
  readonly serverCrashes: number;
  /** Of the statements that are sent: how many lose their connection at some moment of their way. */
  readonly brokenShare: number;
  /** Of the batches of the ledger, and changes of keys: how many are refused for nothing. */
  readonly refusedShare: number;
  readonly usualCommitMs: number;
  readonly longestCommitMs: number;
  readonly longCommitShare: number;
}

/**
 * `hasLateRefusals`: batches are refused also where an earlier try of theirs lost its reply, so that it may
 * have been committed.
 */
export function planFaults(random: SeededRandom, hasLateRefusals: boolean): FaultPlan {
  const isQuiet = random.chance(0.15);
  const some = (most: number): number =>
    !isQuiet && random.chance(0.45) ? random.integer(1, most) : 0;
  const isSlow = random.chance(0.3);
  const refusedShare = !isQuiet && random.chance(0.2) ? random.pick([0.02, 0.15]) : 0;
  const plan: FaultPlan = {
    isQuiet,
    kills: some(2),
    pauses: some(2),
    partings: some(2),
    serverCrashes: some(1),
    brokenShare: !isQuiet && random.chance(0.5) ? random.pick([0.02, 0.1, 0.3]) : 0,
    refusedShare,
    usualCommitMs: isSlow ? 60 : 3,
    longestCommitMs: random.pick([20, 400, isQuiet ? 400 : 2_500]),
    longCommitShare: random.pick([0.03, 0.03, 0.25]),
  };
  if (refusedShare === 0 || hasLateRefusals) return plan;
  return { ...plan, brokenShare: 0, partings: 0, serverCrashes: 0 };
}
