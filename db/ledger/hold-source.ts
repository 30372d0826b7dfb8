import type { HoldDemand, HoldVerdict } from "./hold-rows.ts";

/** A hold that is asked for with the next batch. */
export interface HoldUnit {
  readonly demand: HoldDemand;
  /** Called once the batch is durable. Must not throw. */
  decided(verdict: HoldVerdict): void;
  /** Nothing was written. Must not throw. */
  failed(error: unknown): void;
}

/** Those who wait for holds, asked when a batch is put together, so that they know the latest. */
export interface HoldSource {
  readonly hasWork: boolean;
  /** A bounded number of them, in the order in which they are to be decided. */
  take(): readonly HoldUnit[];
}
