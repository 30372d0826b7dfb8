import { join } from "node:path";
import type { Database } from "../../../db/client.ts";
import { commitSharedHolds } from "../../../db/ledger/exchange-batch.ts";
import { GroupCommit } from "../../../db/ledger/group-commit.ts";
import { orgAccountId } from "../../../db/ledger/rows.ts";
import type { InstanceIdentity } from "../../../db/ledger/settle-batch.ts";
import { endEarlierSession } from "../../../db/ledger/written-before.ts";
import { isHeldBySilent as isAccountHeldBySilent } from "../../../db/queries/instances.ts";
import { BudgetSubjects } from "../../billing/ledger/budget-subjects.ts";
import { ClusteredMoney } from "../../billing/ledger/clustered.ts";
import { CreditOrders } from "../../billing/ledger/credit-orders.ts";
import type { MoneyDependencies } from "../../billing/ledger/engine.ts";
import type { IsHeldBySilent } from "../../billing/ledger/hold-queue.ts";
import type { Hold } from "../../billing/ledger/interface.ts";
import { SingleNodeMoney } from "../../billing/ledger/single-node.ts";
import {
  PendingRefunds,
  type UndeliveredChargeJournal,
} from "../../billing/ledger/undelivered-charge-journal.ts";
import { Suspensions } from "../../http/authentication.ts";
import { CallAdmission } from "../../inference/call/admission.ts";
import type { Clock } from "../../lib/clock.ts";
import type { RateWindows } from "../../platform/cluster/interface.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import { NoteFile } from "../../platform/storage/note-file.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { createActorWorld } from "./actor-world.ts";
import type { Base } from "./base.ts";

/**
 * Composes the money engine. A single gateway has its holds in memory, several gateways have them in the database. In
 * both modes the ledger commits everything that was queued during its last commit.
 */
export function createMoney(parts: {
  readonly isClustered: boolean;
  readonly world: Pick<MoneyDependencies, "keys" | "organizations" | "subjectBudgets">;
  readonly connections: {
    readonly ledger: Database;
    /** Name of the ledger's sessions in the database. */
    readonly ledgerName: string;
  };
  readonly instance: InstanceIdentity;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly notes: UndeliveredChargeJournal;
  isHeldBySilent?: IsHeldBySilent;
  onFenced(): void;
  onError(error: unknown): void;
}): { readonly money: SingleNodeMoney | ClusteredMoney; readonly ledger: GroupCommit } {
  const { world, connections, instance, clock, telemetry } = parts;
  const dependencies = {
    ...world,
    clock,
    instance,
    onClamped: (hold: Pick<Hold, "requestId">, clampedNano: bigint) => {
      telemetry.countClampedCharge();
      telemetry.log.warn(
        { request_id: hold.requestId, clamped_nano_usd: clampedNano.toString() },
        "charge clamped to its hold",
      );
    },
    onBackgroundError: parts.onError,
    notes: parts.notes,
  };
  const sql = connections.ledger;
  const common = {
    sql,
    instance,
    onFenced: parts.onFenced,
    onGuardViolated: guardReport(telemetry),
    endEarlierTry: () => endEarlierSession(sql, connections.ledgerName),
    onBatch: (units: number, durationMs: number) => telemetry.observeCommit(units, durationMs),
  };
  if (parts.isClustered) {
    const money = new ClusteredMoney(dependencies, parts.isHeldBySilent);
    const ledger = new GroupCommit({
      ...common,
      commitBatch: commitSharedHolds,
      holds: money.holdQueue,
      onCommitted: (settlements) => money.committed(settlements),
      onPostedAbandoned: (settlement) => money.refund(settlement),
    });
    money.connect(ledger);
    return { money, ledger };
  }
  const money = new SingleNodeMoney(dependencies);
  const ledger = new GroupCommit({
    ...common,
    onCommitted: (settlements, totals) => money.committed(settlements, totals),
    onPostedAbandoned: (settlement) => money.refund(settlement),
  });
  money.connect(ledger);
  return { money, ledger };
}

/** Reports writes that the database rejected because they would have overspent. */
function guardReport(telemetry: Telemetry) {
  let violations = 0;
  telemetry.counter(
    "gateway_money_guard_violations_total",
    "Writes that the database rejected because they would have overspent. Each is a fault of the gateway.",
    () => violations,
  );
  return (error: unknown, requestIds: readonly string[]): void => {
    violations++;
    telemetry.log.fatal(
      { err: error, request_ids: requestIds },
      "the database rejected a write that would have overspent: this is a fault of the gateway",
    );
  };
}

/** Composes actors, holds and the ledger, with their two users: admission of calls, and operators' orders. */
export function composeMoney(
  base: Base,
  refunds: ReturnType<typeof composePendingRefunds>,
  rates: RateWindows,
) {
  const { changes, clock, read, isClustered, onError } = base;
  const world = createActorWorld({
    changes,
    clock,
    read,
    commit: (effects, commitChain) => ledger.submit(effects, commitChain),
  });
  const { organizations } = world;
  const isHeldBySilent = (organizationId: string) =>
    isAccountHeldBySilent(base.sql, orgAccountId(organizationId));
  const { money, ledger } = createMoney({ ...base, world, ...refunds, isHeldBySilent });
  const budgetSubjects = new BudgetSubjects(read);
  changes.invalidate("budget-subjects", budgetSubjects);
  const suspensions = new Suspensions({ read });
  changes.on("suspension", () => suspensions.forget());
  changes.onGap(() => suspensions.forget());
  const holdsAreShared = isClustered;
  const orders = new CreditOrders({ organizations, holdsAreShared, clock, read, onError });
  changes.on("credit-command", () => void orders.carryOut());
  changes.onGap(() => void orders.carryOut());
  return {
    world,
    money,
    ledger,
    budgetSubjects,
    suspensions,
    admission: new CallAdmission({ rates, organizations, money, budgetSubjects, clock, read }),
    orders,
  };
}

export type MoneyParts = ReturnType<typeof composeMoney>;

const FOLDER = "refunds-owed";

interface PendingRefundParts {
  readonly config: GatewayConfig;
  readonly sql: Database;
  readonly instance: { readonly id: string };
  readonly clock: Clock;
  onError(error: unknown): void;
  /** Ends the process immediately, because it was declared dead. */
  onFenced(): void;
}

/** Parts that use the pending refunds and are constructed after them. */
interface LaterParts {
  readonly ledger: GroupCommit;
  readonly money: { noteUnanswered(): void };
  readonly ticker: { recordUndelivered(): void };
}

/** Composes the record of undelivered answers: a file of this instance, next to the files of earlier instances. */
export function composePendingRefunds({ config, onFenced, ...parts }: PendingRefundParts) {
  let laterParts: LaterParts | undefined;
  const notes = new PendingRefunds({
    ...parts,
    file: new NoteFile(join(config.dataDir, FOLDER), parts.instance.id),
    submit: (effect) => laterParts!.ledger.submit([effect]),
  });
  return {
    notes,
    onFenced(): void {
      laterParts?.money.noteUnanswered();
      laterParts?.ticker.recordUndelivered();
      onFenced();
    },
    begin(parts: LaterParts): void {
      laterParts = parts;
      notes.watch();
    },
  };
}
