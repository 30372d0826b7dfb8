/** How long a job's owner waits before it looks again. */

const FIRST_PAUSE_MS = 500;
const MAX_FOLLOW_PAUSE_MS = 30_000;
/** A job is looked at about this often over its life, on a scale that doubles. */
const LOOKS_AN_AGE = 20;
const MAX_TROUBLE_PAUSE_MS = 60_000;
const MAX_CLEAN_UP_PAUSE_MS = 3_600_000;
/** Beyond it a doubled pause is above every maximum. */
const MAX_DOUBLINGS = 16;

/** Young jobs are looked at often, old ones seldom. */
export function pauseOfFollowing(ageMs: number): number {
  return Math.min(Math.max(FIRST_PAUSE_MS, ageMs / LOOKS_AN_AGE), MAX_FOLLOW_PAUSE_MS);
}

/**
 * The pause after so many failed calls in a row: doubled each time, the upper half of it left to chance.
 *
 * @param waitMs what the provider asked to wait
 */
export function pauseOfTrouble(
  troubles: number,
  random: () => number,
  waitMs = 0,
  isCleanUp = false,
): number {
  const maxMs = isCleanUp ? MAX_CLEAN_UP_PAUSE_MS : MAX_TROUBLE_PAUSE_MS;
  const doubledMs = FIRST_PAUSE_MS * 2 ** Math.min(troubles, MAX_DOUBLINGS);
  const wholeMs = Math.min(doubledMs, maxMs);
  return Math.max(wholeMs / 2 + (random() * wholeMs) / 2, Math.min(waitMs, maxMs));
}
