import { apiKeyActor } from "../../actors/api-key/actor.ts";
import { organizationActor } from "../../actors/organization/actor.ts";
import {
  type ActorEnvironment,
  ActorRegistry,
  type PassivationPolicy,
} from "../../actors/runtime/registry.ts";
import { endEarlierSession } from "../../db/ledger/earlier-session.ts";
import type { Effect } from "../../db/ledger/effects.ts";
import { type Abandonment, GroupCommit } from "../../db/ledger/group-commit.ts";
import { insertCreditCommand } from "../../db/queries/credit-commands.ts";
import type { Query } from "../../db/query.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { AloneMoney } from "../../src/services/money/alone.ts";
import { CreditOrders } from "../../src/services/money/credit-orders.ts";
import { giveCredit, openBooks } from "../ledger/books.ts";
import type { OwnedMoney } from "./money/owned-money.ts";

export interface AloneMoneyOptions {
  /** The ledger's connection goes there, where it is not the database itself. */
  readonly ledgerUrl?: (databaseUrl: string) => Promise<string>;
  readonly passivation?: PassivationPolicy;
}

/** Says whether something is being written, so that virtual time can wait for it. */
class WatchedLedger extends GroupCommit {
  writing = 0;

  override async submit(effects: readonly Effect[], abandonment?: Abandonment): Promise<void> {
    this.writing++;
    try {
      await super.submit(effects, abandonment);
    } finally {
      this.writing--;
    }
  }
}

const START_MS = Date.UTC(2026, 2, 14, 12);

/** Money of an instance that is alone, on a database of its own, as the gateway composes it. */
export async function openAloneMoney(options: AloneMoneyOptions = {}) {
  const books = await openBooks();
  const clock = new VirtualClock(START_MS);
  const context = { nowMs: 0, random: Math.random };
  const backgroundErrors: unknown[] = [];
  const notes = new Set<string>();
  const batches: number[] = [];
  let reading = 0;
  const read = async <Result>(query: Query<Result>): Promise<Result> => {
    reading++;
    try {
      return await query.run(books.sql);
    } finally {
      reading--;
    }
  };
  const environment: ActorEnvironment = {
    clock,
    turnContext: () => ({ ...context, nowMs: clock.nowMs() }),
    commit: (effects, lineage) => ledger.submit(effects, lineage),
    read,
  };
  const keys = new ActorRegistry(apiKeyActor, environment, options.passivation);
  const organizations = new ActorRegistry(organizationActor, environment, options.passivation);
  const clamped: bigint[] = [];
  const money = new AloneMoney({
    keys,
    organizations,
    clock,
    instance: books.instance,
    onClamped: (_, clampedNano) => void clamped.push(clampedNano),
    onBackgroundError: (error) => void backgroundErrors.push(error),
    notes: {
      add: ({ requestId }) => void notes.add(requestId),
      remove: (id) => void notes.delete(id),
    },
  });
  const sql = books.connect(1, await options.ledgerUrl?.(books.url));
  const ledger: WatchedLedger = new WatchedLedger({
    sql,
    instance: books.instance,
    endEarlierTry: () => endEarlierSession(sql, sql.options.connection.application_name!),
    onCommitted: (settlements, totals) => money.committed(settlements, totals),
    onFenced: () => void backgroundErrors.push(new Error("fenced")),
    onPostedAbandoned: (settlement) => money.refund(settlement),
    onBatch: (units) => void batches.push(units),
  });
  money.connect(ledger);
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
    sql: books.sql,
    isBusy: () => reading > 0 || ledger.writing > 0,
    addOrganization: books.addOrganization,
    addKey: books.addKey,
    async change(payer, changed) {
      await keys.get(payer.keyId).ask("update", { changed, eventId: newId("evt") });
      keys.forget(payer.keyId);
    },
    async remove(payer) {
      await keys.get(payer.keyId).ask("remove", { eventId: newId("evt") });
      keys.forget(payer.keyId);
    },
    async topUp(payer, amountNano) {
      await giveCredit(books.sql, payer, amountNano);
      organizations.forget(payer.organizationId);
    },
    async adjust(payer, amountNano) {
      const id = newId("cmd");
      await books.sql.begin((transaction) =>
        insertCreditCommand(transaction, {
          id,
          transactionId: "",
          organizationId: payer.organizationId,
          amountNano,
          description: "Correction",
        }),
      );
      await orders.carryOut();
      const [row] = await books.sql`SELECT refused_code FROM credit_commands WHERE id = ${id}`;
      return row!.refused_code === null;
    },
    forget(payer) {
      keys.forget(payer.keyId);
      organizations.forget(payer.organizationId);
    },
    async close() {
      await ledger.close();
      await books.close();
    },
  } satisfies OwnedMoney & Record<string, unknown>;
}
