import type { StatementEffect } from "../../../db/ledger/effects.ts";
import { type CreditEntry, postCredit } from "../../../db/ledger/post-credit.ts";
import type { Settlement } from "../../../db/ledger/rows.ts";
import { newId } from "../../lib/ids.ts";

/** Gives a charge back whose answer never left, because the database answered too late. */
export function refundEffect(settlement: Settlement): StatementEffect {
  const entry: CreditEntry = {
    transactionId: newId("txn"),
    organizationId: settlement.organizationId,
    type: "refund",
    amountNano: settlement.chargeNano,
    description: `Refund of ${settlement.requestId}, whose answer could not be delivered`,
  };
  return {
    kind: "statement",
    name: "refund",
    tables: ["accounts", "transactions", "changes"],
    events: [],
    isOwed: true,
    async run(sql) {
      await postCredit(sql, entry);
    },
  };
}
