import { apiKeyActor } from "../../actors/api-key/actor.ts";
import { organizationActor } from "../../actors/organization/actor.ts";
import { turnContextOf } from "../../actors/runtime/definition.ts";
import { type ActorEnvironment, ActorRegistry } from "../../actors/runtime/registry.ts";
import { subjectBudgetActor } from "../../actors/subject-budget/actor.ts";
import { type Query, SHARED_LEDGER_SETTINGS } from "../../db/client.ts";
import { commitSharedHolds } from "../../db/ledger/exchange-batch.ts";
import type { InstanceIdentity } from "../../db/ledger/settle-batch.ts";
import { endEarlierSession } from "../../db/ledger/written-before.ts";
import { ClusteredMoney } from "../../src/billing/ledger/clustered.ts";
import { CreditOrders } from "../../src/billing/ledger/credit-orders.ts";
import type { IsHeldBySilent } from "../../src/billing/ledger/hold-queue.ts";
import { type Clock, VirtualClock } from "../../src/lib/clock.ts";
import { type Books, giveCredit, openBooks } from "../ledger/books.ts";
import type { OwnedMoney } from "./money/owned-money.ts";
import { payerChanges } from "./money/payer-changes.ts";
import { WatchedLedger, WatchedWork } from "./money/watched-work.ts";

const START_MS = Date.UTC(2026, 2, 14, 12);

export interface SharingInstanceOptions {
  readonly clock: Clock;
  readonly instance: InstanceIdentity;
  /** The ledger's connection goes there, where it is not the database itself. */
  readonly ledgerUrl?: string | undefined;
  readonly isHeldBySilent?: IsHeldBySilent;
}

/** Money of one of several instances on these books, as the gateway composes it. */
export function shareMoney(books: Books, options: SharingInstanceOptions) {
  const { clock, instance } = options;
  const backgroundErrors: unknown[] = [];
  const notes = new Set<string>();
  const clamped: bigint[] = [];
  const batches: number[] = [];
  let fenced = 0;
  const work = new WatchedWork();
  const read = <Result>(query: Query<Result>) => work.during(() => query.run(books.sql));
  const applicationName = `ledger ${instance.id}`;
  const sql = books.connect(1, options.ledgerUrl, {
    applicationName,
    settings: SHARED_LEDGER_SETTINGS,
  });
  const ledger = new WatchedLedger(
    {
      sql,
      instance,
      commitBatch: (...batch) => work.during(() => commitSharedHolds(...batch)),
      endEarlierTry: () => endEarlierSession(sql, applicationName),
      onFenced: () => void fenced++,
      onGuardViolated: (error) => void backgroundErrors.push(error),
      onBatch: (units) => void batches.push(units),
    },
    work,
  );
  const environment: ActorEnvironment = {
    clock,
    context: turnContextOf(clock, Math.random),
    commit: (effects, commitChain) => ledger.submit(effects, commitChain),
    read,
  };
  const keys = new ActorRegistry(apiKeyActor, environment);
  const organizations = new ActorRegistry(organizationActor, environment);
  const subjectBudgets = new ActorRegistry(subjectBudgetActor, environment);
  const money = new ClusteredMoney(
    {
      ledger,
      keys,
      organizations,
      subjectBudgets,
      clock,
      instance,
      onClamped: (_, clampedNano) => void clamped.push(clampedNano),
      onBackgroundError: (error) => void backgroundErrors.push(error),
      notes: {
        add: ({ requestId }) => void notes.add(requestId),
        remove: (id) => void notes.delete(id),
      },
    },
    options.isHeldBySilent,
  );
  const orders = new CreditOrders({
    organizations,
    holdsAreShared: true,
    clock,
    read,
    onError: (error) => void backgroundErrors.push(error),
  });
  return {
    money,
    ledger,
    keys,
    organizations,
    subjectBudgets,
    orders,
    clamped,
    backgroundErrors,
    notes,
    batches,
    instance,
    get fenced() {
      return fenced;
    },
    isBusy: () => work.isBusy || money.holdQueue.hasWork || ledger.queuedUnits > 0,
  };
}

/** One of several instances on a database of its own, in the hands of a test. */
export async function openClusteredMoney() {
  const books = await openBooks();
  const clock = new VirtualClock(START_MS);
  const shared = shareMoney(books, { clock, instance: books.instance });
  const { keys, organizations, subjectBudgets, orders } = shared;
  return {
    ...shared,
    clock,
    books,
    ...payerChanges(books, { keys, organizations, subjectBudgets, orders, clock }),
    async topUp(payer, amountNano) {
      await giveCredit(books.sql, payer, amountNano);
    },
    async close() {
      await shared.ledger.close();
      await books.close();
    },
  } satisfies OwnedMoney & Record<string, unknown>;
}
