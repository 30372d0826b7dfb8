import { CallSlots } from "../../src/inference/call/routing/call-slots.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { MemorySlots } from "../../src/platform/cluster/parallel-slots.ts";

/** The places of calls where no endpoint has a limit. */
export const noLimits = new CallSlots({
  slots: new MemorySlots(),
  clock: systemClock,
  maxWaitMs: 0,
});
