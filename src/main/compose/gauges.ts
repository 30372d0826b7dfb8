import type { Database } from "../../../db/client.ts";
import type { GroupCommit } from "../../../db/ledger/group-commit.ts";
import { BalanceWatch } from "../../billing/ledger/balance-watch.ts";
import type { MoneyPort } from "../../billing/ledger/interface.ts";
import { UsageRollUp } from "../../billing/usage/usage.ts";
import type { StreamTicker } from "../../inference/call/stream/ticker.ts";
import type { Clock } from "../../lib/clock.ts";
import { usdNumber } from "../../lib/money.ts";
import type { InFlight } from "../../platform/cluster/in-flight.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import type { ActorWorld } from "./actor-world.ts";

/** Registers the gauges of this process. */
export function registerGauges(
  telemetry: Telemetry,
  parts: {
    readonly money: MoneyPort;
    readonly ledger: GroupCommit;
    readonly world: ActorWorld;
    readonly ticker: StreamTicker;
    readonly inFlight: InFlight;
    readonly tuning: { readonly runningJobs: number };
  },
): void {
  const { money, ledger, world, ticker, inFlight, tuning } = parts;
  telemetry.gauge(
    "gateway_fine_tuning_jobs",
    "Fine-tuning jobs that this instance works on.",
    () => tuning.runningJobs,
  );
  telemetry.gauge(
    "gateway_holds_outstanding",
    "Holds that are neither settled nor released.",
    () => money.outstandingHolds,
  );
  telemetry.gauge(
    "gateway_commit_queue",
    "Units that wait for the next commit.",
    () => ledger.queuedUnits,
  );
  telemetry.gauge("gateway_streams_running", "Streams that are open.", () => ticker.size);
  telemetry.gauge("gateway_requests_in_flight", "Requests in flight.", () => inFlight.count);
  telemetry.gauge(
    "gateway_mailbox_depth",
    "Messages that wait in the mailboxes of actors.",
    () =>
      world.keys.waitingMessages +
      world.organizations.waitingMessages +
      world.subjectBudgets.waitingMessages +
      world.endpoints.waitingMessages,
  );
  telemetry.gauge(
    "gateway_actors",
    "Actors in memory.",
    () =>
      world.keys.size + world.organizations.size + world.subjectBudgets.size + world.endpoints.size,
  );
}

/** Watches balances for `gateway_balance_usd` until it is stopped. */
export function watchBalances(parts: {
  readonly telemetry: Telemetry;
  readonly sql: Database;
  readonly clock: Clock;
  readonly membership: { peers(): { readonly rank: number } };
  onError(error: unknown): void;
}): BalanceWatch {
  const { telemetry, sql, clock, membership, onError } = parts;
  const isOurTurn = () => membership.peers().rank === 0;
  const watch = new BalanceWatch({ sql, clock, isOurTurn, onError });
  telemetry.labelledGauge(
    "gateway_balance_usd",
    "Balance of an organization, up to 10 seconds old. One instance reports it, for at most 1,000 organizations.",
    "organization",
    () =>
      watch.balances.map(
        ({ organizationId, balanceNano }) => [organizationId, usdNumber(balanceNano)] as const,
      ),
  );
  void watch.start();
  return watch;
}

/** Adds charges to the usage until it is stopped. In a cluster, one instance does so. */
export function startUsage(parts: {
  readonly sql: Database;
  readonly clock: Clock;
  readonly membership: { peers(): { readonly rank: number } };
  onError(error: unknown): void;
}): UsageRollUp {
  const rollUp = new UsageRollUp({
    ...parts,
    isOurTurn: () => parts.membership.peers().rank === 0,
  });
  rollUp.start();
  return rollUp;
}
