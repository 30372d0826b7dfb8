import { apiKeyActor } from "../../actors/api-key/actor.ts";
import { organizationActor } from "../../actors/organization/actor.ts";
import { turnContextOf } from "../../actors/runtime/definition.ts";
import {
  type ActorEnvironment,
  ActorRegistry,
  type PassivationPolicy,
} from "../../actors/runtime/registry.ts";
import { subjectBudgetActor } from "../../actors/subject-budget/actor.ts";
import type { Query } from "../../db/client.ts";
import { endEarlierSession } from "../../db/ledger/written-before.ts";
import { CreditOrders } from "../../src/billing/ledger/credit-orders.ts";
import { SingleNodeMoney } from "../../src/billing/ledger/single-node.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { giveCredit, openBooks } from "../ledger/books.ts";
import type { OwnedMoney } from "./money/owned-money.ts";
import { payerChanges } from "./money/payer-changes.ts";
import { WatchedLedger, WatchedWork } from "./money/watched-work.ts";

export interface SingleNodeMoneyOptions {
  /** The ledger's connection goes there, where it is not the database itself. */
  readonly ledgerUrl?: (databaseUrl: string) => Promise<string>;
  readonly passivation?: PassivationPolicy;
}

const START_MS = Date.UTC(2026, 2, 14, 12);

/** Money of an instance that is alone, on a database of its own, as the gateway composes it. */
export async function openSingleNodeMoney(options: SingleNodeMoneyOptions = {}) {
  const books = await openBooks();
  const clock = new VirtualClock(START_MS);
  const backgroundErrors: unknown[] = [];
  const notes = new Set<string>();
  const batches: number[] = [];
  const work = new WatchedWork();
  const read = <Result>(query: Query<Result>) => work.during(() => query.run(books.sql));
  const sql = books.connect(1, await options.ledgerUrl?.(books.url));
  const ledger = new WatchedLedger(
    {
      sql,
      instance: books.instance,
      endEarlierTry: () => endEarlierSession(sql, sql.options.connection.application_name!),
      onFenced: () => void backgroundErrors.push(new Error("fenced")),
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
  const keys = new ActorRegistry(apiKeyActor, environment, options.passivation);
  const organizations = new ActorRegistry(organizationActor, environment, options.passivation);
  const subjectBudgets = new ActorRegistry(subjectBudgetActor, environment, options.passivation);
  const clamped: bigint[] = [];
  const money = new SingleNodeMoney({
    ledger,
    keys,
    organizations,
    subjectBudgets,
    clock,
    instance: books.instance,
    onClamped: (_, clampedNano) => void clamped.push(clampedNano),
    onBackgroundError: (error) => void backgroundErrors.push(error),
    notes: {
      add: ({ requestId }) => void notes.add(requestId),
      remove: (id) => void notes.delete(id),
    },
  });
  const orders = new CreditOrders({
    organizations,
    holdsAreShared: false,
    clock,
    read,
    onError: (error) => void backgroundErrors.push(error),
  });

  return {
    money,
    clock,
    books,
    keys,
    organizations,
    ledger,
    orders,
    clamped,
    backgroundErrors,
    notes,
    batches,
    isBusy: () => work.isBusy,
    ...payerChanges(books, { keys, organizations, subjectBudgets, orders, clock }),
    async topUp(payer, amountNano) {
      await giveCredit(books.sql, payer, amountNano);
      organizations.forget(payer.organizationId);
    },
    async close() {
      await ledger.close();
      await books.close();
    },
  } satisfies OwnedMoney & Record<string, unknown>;
}
