import type { Ownership, UnownedWork } from "../../../actors/runtime/ownership.ts";
import type { Database } from "../../../db/client.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import type { MoneyPort } from "../../billing/ledger/interface.ts";
import { usableKey } from "../../http/authentication.ts";
import { BatchOwner } from "../../jobs/batches/batch-owner.ts";
import { Batches } from "../../jobs/batches/batches.ts";
import { type LineCallDependencies, LineCalls } from "../../jobs/batches/line-call.ts";
import type { Clock } from "../../lib/clock.ts";
import type { Keyring } from "../../lib/keyring.ts";
import type { ChangeFeed } from "../../platform/cluster/change-feed.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { Provider } from "../../providers/interface.ts";
import type { FileParts } from "./files.ts";

type ConnectOptions = Pick<LineCallDependencies, "routes" | "note"> &
  Parameters<typeof usableKey>[0] & {
    readonly inFlight: LineCallDependencies["inFlight"] & { readonly count: number };
    readonly lag: { readonly lagMs: number };
  };

/** Lag of the event loop in milliseconds above which batch lines wait. */
const BUSY_LAG_MS = 50;
/** Requests in flight above which batch lines wait. */
const BUSY_IN_FLIGHT = 1_000;

export interface BatchParts {
  readonly batches: Batches;
  /** Receives the endpoints. From then on, batch lines can be called. */
  connect(options: ConnectOptions): void;
  close(): Promise<void>;
}

/** Composes batches, and this instance's work on their lines. */
export function composeBatches(options: {
  readonly sql: Database;
  /** The same pool as `sql`, for statements that may take long. */
  readonly background: Database;
  readonly instance: InstanceIdentity;
  readonly ownership: Ownership;
  readonly unowned: UnownedWork;
  readonly changes: ChangeFeed;
  readonly files: Pick<FileParts, "library" | "jobFiles">;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly money: MoneyPort;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly telemetry: Pick<Telemetry, "log">;
  onError(error: unknown): void;
}): BatchParts {
  const { sql, background, unowned, changes, files, onError } = options;
  const { promise: calls, resolve } = Promise.withResolvers<LineCalls>();
  let isBusy = () => true;
  const sweep = (): void => void unowned.sweep(owner.kind);
  const owner: BatchOwner = new BatchOwner({
    ...options,
    sql: background,
    files: files.jobFiles,
    calls,
    isBusy: () => isBusy(),
    warn: (message) => options.telemetry.log.warn(message),
    onRoom: sweep,
  });
  unowned.register({
    kind: owner.kind,
    findWork: (limit) => owner.findWork(limit),
    start: (lease) => owner.start(lease),
  });
  // A batch is new, or has to end.
  changes.on("batch-work", (batchId) => {
    owner.applyChange(batchId).catch(onError);
    sweep();
  });
  return {
    batches: new Batches({ sql, files: files.library, calls }),
    connect({ routes, note, inFlight, lag, ...keys }) {
      isBusy = () => lag.lagMs > BUSY_LAG_MS || inFlight.count > BUSY_IN_FLIGHT;
      const usable = (id: string) => usableKey(keys, id);
      resolve(new LineCalls({ routes, note, inFlight, usableKey: usable }));
    },
    close: () => owner.stop(),
  };
}
