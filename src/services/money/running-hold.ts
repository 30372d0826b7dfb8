import type { Hold } from "./interface.ts";
import type { PendingHold } from "./pending-hold.ts";

/** A hold that has not ended, as this instance sees it. */
export interface RunningHold {
  readonly hold: Hold;
  /** Where its request began before it was durable, until it is. */
  early: PendingHold | undefined;
  /** Whether a checkpoint was handed in, or is known to be written. */
  attempt: "none" | "asked for" | "written";
  checkpointing: Promise<void> | undefined;
  settling: Promise<void> | undefined;
}
