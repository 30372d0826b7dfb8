import type { ApiKeyActors } from "../../../actors/api-key/actor.ts";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { insertCreditCommand } from "../../../db/queries/credit-commands.ts";
import { newId } from "../../../src/lib/ids.ts";
import type { CreditOrders } from "../../../src/money/credit-orders.ts";
import type { Books } from "../../ledger/books.ts";
import type { OwnedMoney } from "./owned-money.ts";

type PayerChanges = Pick<
  OwnedMoney,
  "sql" | "addOrganization" | "addKey" | "change" | "remove" | "adjust" | "limitCredit" | "forget"
>;

/** What administration and operators do to the payers of these books. */
export function payerChanges(
  books: Books,
  keys: ApiKeyActors,
  organizations: OrganizationActors,
  orders: CreditOrders,
): PayerChanges {
  const { sql, addOrganization, addKey } = books;
  return {
    sql,
    addOrganization,
    addKey,
    async change({ keyId }, changed) {
      await keys.get(keyId).ask("update", { changed, eventId: newId("evt") });
      keys.forget(keyId);
    },
    async remove({ keyId }) {
      await keys.get(keyId).ask("remove", { eventId: newId("evt") });
      keys.forget(keyId);
    },
    async adjust({ organizationId }, amountNano) {
      const id = newId("cmd");
      const order = { kind: "adjustment", id, organizationId, amountNano } as const;
      await sql.begin((transaction) =>
        insertCreditCommand(transaction, { ...order, description: "Correction" }),
      );
      await orders.carryOut();
      const [row] = await sql`SELECT refused_code FROM credit_commands WHERE id = ${id}`;
      return row!.refused_code === null;
    },
    async limitCredit({ organizationId }, creditLimitNano) {
      const id = newId("cmd");
      const outcome = await orders.give({
        kind: "credit-limit",
        id,
        organizationId,
        creditLimitNano,
      });
      return !outcome.isRefused;
    },
    forget({ keyId, organizationId }) {
      keys.forget(keyId);
      organizations.forget(organizationId);
    },
  };
}
