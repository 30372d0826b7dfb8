import type { GroupCommit } from "../../../db/ledger/group-commit.ts";
import { BalanceWatch } from "../../billing/ledger/balance-watch.ts";
import { UsageRollUp } from "../../billing/usage/usage.ts";
import { usdNumber } from "../../lib/money.ts";
import type { InFlight } from "../../platform/cluster/in-flight.ts";
import type { Base } from "./base.ts";
import type { ClusterNode } from "./cluster-node.ts";
import type { Part } from "./lifecycle.ts";
import type { MoneyParts } from "./money.ts";

/** Registers the gauges of this process. */
export function registerGauges({
  telemetry,
  money,
  ledger,
  world,
  inFlight,
}: Base & MoneyParts & { readonly ledger: GroupCommit; readonly inFlight: InFlight }): void {
  const registries = Object.values(world);
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
  telemetry.gauge("gateway_requests_in_flight", "Requests in flight.", () => inFlight.count);
  telemetry.gauge("gateway_mailbox_depth", "Messages that wait in the mailboxes of actors.", () =>
    registries.reduce((sum, { waitingMessages }) => sum + waitingMessages, 0),
  );
  telemetry.gauge("gateway_actors", "Actors in memory.", () =>
    registries.reduce((sum, { size }) => sum + size, 0),
  );
}

/** Composes the watch of balances for `gateway_balance_usd`. */
export function composeBalances(base: Base, { membership }: ClusterNode): Part {
  const isOurTurn = () => membership.peers().rank === 0;
  const watch = new BalanceWatch({ ...base, sql: base.background, isOurTurn });
  base.telemetry.labelledGauge(
    "gateway_balance_usd",
    "Balance of an organization, up to 10 seconds old. One instance reports it, for at most 1,000 organizations.",
    "organization",
    () =>
      watch.balances.map(
        ({ organizationId, balanceNano }) => [organizationId, usdNumber(balanceNano)] as const,
      ),
  );
  return { start: () => void watch.start(), stop: () => watch.stop() };
}

/** Composes the roll-up of charges to the usage. In a cluster, one instance does it. */
export function composeUsage(base: Base, { membership }: ClusterNode): UsageRollUp {
  const isOurTurn = () => membership.peers().rank === 0;
  return new UsageRollUp({ ...base, sql: base.background, isOurTurn });
}
