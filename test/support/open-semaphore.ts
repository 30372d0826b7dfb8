import { overloaded } from "../../src/lib/errors.ts";
import { FairSemaphore } from "../../src/lib/fair-share.ts";

/** A semaphore with room for all that waits. */
export function openSemaphore(most: number, mostOfOne = most): FairSemaphore {
  return new FairSemaphore({
    ...{ most, mostOfOne, maxWaiting: 1_000_000 },
    refusal: () => overloaded("Too much waits."),
  });
}
