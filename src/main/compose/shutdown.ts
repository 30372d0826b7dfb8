import type { GroupCommit } from "../../../db/ledger/group-commit.ts";
import type { LastUse } from "../../accounts/keys/api-keys.ts";
import type { BalanceWatch } from "../../billing/ledger/balance-watch.ts";
import type { CreditOrders } from "../../billing/ledger/credit-orders.ts";
import type { PendingRefunds } from "../../billing/ledger/undelivered-charge-journal.ts";
import type { FailedRequests } from "../../billing/requests/failed-requests.ts";
import type { UsageRollUp } from "../../billing/usage/usage.ts";
import type { BodyBudget } from "../../http/body-budget.ts";
import type { Idempotency } from "../../inference/call/idempotency/idempotency.ts";
import type { StreamTicker } from "../../inference/call/stream/ticker.ts";
import type { EventFollowing } from "../../inference/responses/follow-events.ts";
import type { DeadlineQueue } from "../../lib/deadlines.ts";
import type { InFlight } from "../../platform/cluster/in-flight.ts";
import type { Coordination } from "../../platform/cluster/interface.ts";
import type { MetricExport } from "../../platform/telemetry/metric-export.ts";
import type { EventLoopLag } from "../../platform/telemetry/process-metrics.ts";
import type { Tracing } from "../../platform/telemetry/tracing.ts";
import type { Connections } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { FineTuningParts } from "./fine-tuning.ts";
import type { WebhookParts } from "./webhooks.ts";

/** The steps in which a gateway stops, in this order. */
export interface Shutdown {
  /** Reports that the gateway is no longer ready, and closes each connection after its answer. New requests are still served. */
  announceStop(): void;
  /** Returns the number of running requests. */
  requestsRunning(): number;
  /** Waits for running requests for `graceMs`. Then aborts the others: their clients get an error, and they are charged. */
  drain(graceMs: number): Promise<void>;
  /** Rejects if the database could not be reached. The next start settles the rest. */
  close(): Promise<void>;
}

export interface ShutdownParts {
  readonly inFlight: InFlight;
  readonly bodies: BodyBudget;
  readonly workThread: { close(): void };
  readonly ticker: StreamTicker;
  readonly deadlines: DeadlineQueue;
  readonly modelLists: { stop(): void };
  readonly healthChecks: { stop(): void };
  readonly sweep: ReturnType<typeof setInterval>;
  readonly lag: EventLoopLag;
  readonly balances: BalanceWatch;
  readonly usage: UsageRollUp;
  readonly orders: CreditOrders;
  readonly billing: { close(): Promise<void> };
  readonly notes: PendingRefunds;
  readonly tuning: FineTuningParts;
  readonly idempotency: Idempotency;
  readonly files: { close(): Promise<void> };
  readonly vectorStores: { close(): Promise<void> };
  readonly batches: { close(): Promise<void> };
  readonly hosted: { close(): void };
  readonly responses: { readonly following: EventFollowing };
  readonly lastUse: LastUse;
  readonly failedRequests: FailedRequests;
  readonly tracing: Tracing | undefined;
  readonly metricExport: MetricExport | undefined;
  readonly ledger: GroupCommit;
  readonly webhooks: WebhookParts;
  readonly node: ClusterNode;
  readonly coordination: Coordination;
  readonly connections: Connections;
}

/** Milliseconds for aborted requests to be charged and answered. */
const ABORTED_DRAIN_MS = 2_000;
const WRITE_FAILED_MS = 2_000;
/** Milliseconds for the last traces and metrics to be sent. */
const EXPORT_MS = 2_000;

/** Composes the shutdown. Each part is closed while all parts that it may still use are open. */
export function composeShutdown(parts: ShutdownParts): Shutdown {
  const { inFlight, connections, coordination } = parts;
  return {
    announceStop: () => inFlight.announceStop(),
    requestsRunning: () => inFlight.count,
    async drain(graceMs) {
      const { following } = parts.responses;
      following.drain();
      if (await inFlight.drained(graceMs)) return;
      inFlight.abortAll();
      parts.bodies.abortAll();
      parts.workThread.close();
      parts.ticker.abortAll();
      parts.deadlines.expireAll();
      await inFlight.drained(ABORTED_DRAIN_MS);
      following.stop();
    },
    async close() {
      clearInterval(parts.sweep);
      parts.modelLists.stop();
      parts.healthChecks.stop();
      parts.lag.stop();
      parts.balances.stop();
      parts.usage.stop();
      parts.orders.close();
      parts.notes.close();
      parts.hosted.close();
      await parts.billing.close();
      // Begun before the thread closes, because a job would count the loss of the thread as a failed attempt.
      const tuningClosed = Promise.all([
        parts.tuning.close(),
        parts.vectorStores.close(),
        parts.batches.close(),
      ]);
      parts.workThread.close();
      await tuningClosed;
      await parts.idempotency.close();
      await parts.files.close();
      await parts.lastUse.write();
      await parts.failedRequests.close(WRITE_FAILED_MS);
      const exported = Promise.all([
        parts.tracing?.close(EXPORT_MS),
        parts.metricExport?.close(EXPORT_MS),
      ]);
      await parts.ledger.close();
      await parts.webhooks.stop();
      try {
        await parts.node.leave();
      } finally {
        await coordination.close();
        await connections.close();
        await exported;
      }
    },
  };
}
