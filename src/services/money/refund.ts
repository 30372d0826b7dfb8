import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { refundCharge } from "../../../db/ledger/refund-charge.ts";
import type { Settlement } from "../../../db/ledger/rows.ts";
import { newId } from "../../lib/ids.ts";

/**
 * Gives a charge back whose answer never left, because the database answered too late: to the balance, and
 * to the budgets of its key. Budget events that the charge has set off stay as they are: they may have
 * been received, and each goes out exactly once in a period (contract §8), so one that was taken back
 * could never be told again.
 */
export function refundEffect(settlement: Settlement): StatementEffect {
  const { requestId, dayAccount, monthAccount } = settlement;
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
