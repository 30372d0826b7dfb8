import { refundCharge } from "../../db/ledger/credits.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import type { Settlement } from "../../db/ledger/rows.ts";
import type { Clock } from "../lib/clock.ts";
import { newId } from "../lib/ids.ts";
import type { Undelivered, UndeliveredNotes } from "./undelivered.ts";
import { writtenInTheEnd } from "./write-again.ts";

/**
 * Gives a charge back whose answer never left, because the database answered too late: to the balance, and
 * to the budgets of its key. Budget events that the charge has set off stay as they are: they may have
 * been received, and each goes out exactly once in a period, so one that was taken back could never be
 * told again.
 */
export function refundEffect({
  requestId,
  dayAccount,
  monthAccount,
}: Undelivered): StatementEffect {
  const refund = {
    transactionId: newId("txn"),
    requestId,
    dayAccount,
    monthAccount,
    description: `Refund of ${requestId}, whose answer could not be delivered`,
  };
  return {
    kind: "statement",
    name: "refund",
    tables: ["accounts", "transactions", "changes"],
    events: [],
    isOwed: true,
    async run(sql) {
      await refundCharge(sql, refund);
    },
  };
}

export interface RefundsDependencies {
  readonly notes: UndeliveredNotes;
  readonly clock: Clock;
  submit(effect: StatementEffect): Promise<void>;
  /** It is durable. */
  onGiven(settlement: Settlement): void;
  onError(error: unknown): void;
}

/** Refunds of charges that this process knows to have come too late. */
export class Refunds {
  readonly #dependencies: RefundsDependencies;

  constructor(dependencies: RefundsDependencies) {
    this.#dependencies = dependencies;
  }

  give(settlement: Settlement): void {
    const { clock, notes, submit, onGiven, onError } = this.#dependencies;
    const given =
      settlement.chargeNano === 0n
        ? Promise.resolve()
        : writtenInTheEnd(clock, () => submit(refundEffect(settlement)), always);
    given.then(() => {
      notes.remove(settlement.requestId);
      onGiven(settlement);
    }, onError);
  }
}

const always = () => true;
