import { BatchOwner } from "../../jobs/batches/batch-owner.ts";
import { Batches } from "../../jobs/batches/batches.ts";
import { type LineCallDependencies, LineCalls } from "../../jobs/batches/line-call.ts";
import type { InFlight } from "../../platform/cluster/in-flight.ts";
import type { EventLoopLag } from "../../platform/telemetry/process-metrics.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { FileParts } from "./files.ts";
import type { Part } from "./lifecycle.ts";
import type { ModelParts } from "./models.ts";
import type { MoneyParts } from "./money.ts";

/** Lag of the event loop in milliseconds above which batch lines wait. */
const BUSY_LAG_MS = 50;
/** Requests in flight above which batch lines wait. */
const BUSY_IN_FLIGHT = 1_000;

/** Composes batches, and this instance's work on their lines. */
export function composeBatches(
  options: Base &
    ModelParts &
    MoneyParts &
    Pick<LineCallDependencies, "routes" | "note"> & {
      readonly node: ClusterNode;
      readonly files: FileParts;
      readonly inFlight: InFlight;
      readonly lag: EventLoopLag;
    },
): Part & { readonly batches: Batches } {
  const { sql, background, changes, files, inFlight, lag, onError } = options;
  const { ownership, unowned } = options.node;
  const calls = new LineCalls(options);
  const sweep = (): void => void unowned.sweep(owner.kind);
  const owner: BatchOwner = new BatchOwner({
    ...options,
    sql: background,
    files: files.jobFiles,
    calls,
    ownership,
    isBusy: () => lag.lagMs > BUSY_LAG_MS || inFlight.count > BUSY_IN_FLIGHT,
    warn: (message) => options.telemetry.log.warn(message),
    onRoom: sweep,
  });
  unowned.register(owner);
  // A batch is new, or has to end.
  changes.on("batch-work", (batchId) => {
    owner.applyChange(batchId).catch(onError);
    sweep();
  });
  return {
    batches: new Batches({ sql, files: files.library, calls }),
    stop: () => owner.stop(),
  };
}
