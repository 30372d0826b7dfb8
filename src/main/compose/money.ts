import { join } from "node:path";
import type { ActorEnvironment } from "../../../actors/runtime/registry.ts";
import type { Database } from "../../../db/client.ts";
import { commitInMemoryHolds, commitSharedHolds } from "../../../db/ledger/exchange-batch.ts";
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
import { SingleNodeMoney } from "../../billing/ledger/single-node.ts";
import { PendingRefunds } from "../../billing/ledger/undelivered-charge-journal.ts";
import { Suspensions, usableKey } from "../../http/authentication.ts";
import { CallAdmission } from "../../inference/call/admission.ts";
import type { InFlight } from "../../platform/cluster/in-flight.ts";
import type { RateWindows } from "../../platform/cluster/interface.ts";
import { NoteFile } from "../../platform/storage/note-file.ts";
import type { Telemetry } from "../../platform/telemetry/interface.ts";
import { createActorWorld } from "./actor-world.ts";
import type { Base } from "./base.ts";

/** Composes the ledger, which commits charges and holds in groups. */
export function createLedger(parts: {
  readonly isClustered: boolean;
  readonly connections: {
    readonly ledger: Database;
    /** Name of the ledger's sessions in the database. */
    readonly ledgerName: string;
  };
  readonly instance: InstanceIdentity;
  readonly telemetry: Telemetry;
  onFenced(): void;
  /** Returns true while the process drains. */
  isStopping?(): boolean;
}): GroupCommit {
  const { connections, instance, telemetry, onFenced, isStopping } = parts;
  const sql = connections.ledger;
  return new GroupCommit({
    ...{ sql, instance, onFenced, isDraining: isStopping },
    commitBatch: parts.isClustered ? commitSharedHolds : commitInMemoryHolds,
    onGuardViolated: guardReport(telemetry),
    endEarlierTry: () => endEarlierSession(sql, connections.ledgerName),
    onBatch: (units, durationMs) => telemetry.observeCommit(units, durationMs),
  });
}

/** Composes the money engine. A single gateway has its holds in memory, several gateways have them in the database. */
export function createMoney(
  parts: Omit<MoneyDependencies, "onClamped" | "onBackgroundError"> & {
    readonly isClustered: boolean;
    readonly telemetry: Telemetry;
    isHeldBySilent?: IsHeldBySilent;
    onError(error: unknown): void;
  },
): SingleNodeMoney | ClusteredMoney {
  const { telemetry } = parts;
  const dependencies: MoneyDependencies = {
    ...parts,
    onClamped(hold, clampedNano) {
      telemetry.countClampedCharge();
      telemetry.log.warn(
        { request_id: hold.requestId, clamped_nano_usd: clampedNano.toString() },
        "charge clamped to its hold",
      );
    },
    onBackgroundError: parts.onError,
  };
  return parts.isClustered
    ? new ClusteredMoney(dependencies, parts.isHeldBySilent)
    : new SingleNodeMoney(dependencies);
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
export function composeMoney(base: Base, rates: RateWindows, inFlight: InFlight) {
  const { changes, clock, read, isClustered, onError } = base;
  const ledger = createLedger({ ...base, isStopping: () => inFlight.isStopping });
  const commit: ActorEnvironment["commit"] = (effects, chain) => ledger.submit(effects, chain);
  const world = createActorWorld({ changes, clock, read, commit });
  const { organizations } = world;
  const notes = composePendingRefunds(base, ledger);
  const isHeldBySilent = (organizationId: string) =>
    isAccountHeldBySilent(base.sql, orgAccountId(organizationId));
  const money = createMoney({ ...base, ...world, ledger, notes, isHeldBySilent });
  base.beforeFenced(() => money.noteUnanswered());
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
    notes,
    budgetSubjects,
    suspensions,
    /** Returns a key with its current rights. Rejects if the key can no longer call. */
    usableKey: (keyId: string) => usableKey({ ...world, suspensions, clock }, keyId),
    admission: new CallAdmission({ rates, organizations, money, budgetSubjects, clock, read }),
    orders,
  };
}

export type MoneyParts = ReturnType<typeof composeMoney>;

const FOLDER = "refunds-owed";

/** Composes the record of undelivered answers: a file of this instance, next to the files of earlier instances. */
function composePendingRefunds(base: Base, ledger: GroupCommit): PendingRefunds {
  return new PendingRefunds({
    ...base,
    sql: base.background,
    file: new NoteFile(join(base.config.dataDir, FOLDER), base.instance.id),
    submit: (effect) => ledger.submit([effect]),
  });
}
