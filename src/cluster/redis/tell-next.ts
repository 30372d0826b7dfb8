import type { OwnAdmissions } from "./own-admissions.ts";
import type { RateScripts } from "./rate-scripts.ts";

/** Of one script, so that it stops Redis for about a millisecond. */
const MAX_KEYS = 64;
const MAX_PIECES = 1_000;

/**
 * Tells Redis a part of what it does not know; with `takesPart` this instance takes part as soon as nothing
 * is left to tell. What could not be told stays to be told.
 */
export async function tellNext(
  scripts: RateScripts,
  own: OwnAdmissions,
  generation: string,
  takesPart = false,
): Promise<void> {
  const told = own.tell(MAX_KEYS, MAX_PIECES);
  const isAll = takesPart && own.untoldKeys === 0;
  try {
    await scripts.merge(generation, told, isAll, (bucket) => own.ageMs(bucket));
  } catch (error) {
    own.untell(told);
    throw error;
  }
}
