import type { ApiKeyActors } from "../../../actors/api-key/actor.ts";
import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import type { SubjectBudgetActors } from "../../../actors/subject-budget/actor.ts";
import { insertCreditCommand } from "../../../db/queries/credit-commands.ts";
import { SubjectBudgets } from "../../../src/accounts/budgets/subject-budgets.ts";
import { BudgetSubjects } from "../../../src/billing/ledger/budget-subjects.ts";
import type { CreditOrders } from "../../../src/billing/ledger/credit-orders.ts";
import type { Clock } from "../../../src/lib/clock.ts";
import { newId } from "../../../src/lib/ids.ts";
import type { Books } from "../../ledger/books.ts";
import { TEST_AUTHOR } from "../../support/author.ts";
import type { OwnedMoney } from "./owned-money.ts";

type PayerChanges = Pick<
  OwnedMoney,
  | "sql"
  | "addOrganization"
  | "addKey"
  | "change"
  | "remove"
  | "addSubject"
  | "changeSubject"
  | "removeSubject"
  | "adjust"
  | "limitCredit"
  | "forget"
>;

interface ChangedMoney {
  readonly keys: ApiKeyActors;
  readonly organizations: OrganizationActors;
  readonly subjectBudgets: SubjectBudgetActors;
  readonly orders: CreditOrders;
  readonly clock: Clock;
}

/** What administration and operators do to the payers of these books. */
export function payerChanges(books: Books, money: ChangedMoney): PayerChanges {
  const { sql, addOrganization, addKey } = books;
  const { keys, organizations, orders, clock } = money;
  const budgetSubjects = new BudgetSubjects((query) => query.run(sql));
  const budgets = new SubjectBudgets({ sql, clock, budgetSubjects, world: money });
  const organizationOf = new Map<string, string>();
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
    async addSubject(organizationId, type, limits) {
      const subject = { type, value: crypto.randomUUID() };
      const none = { dailyBudgetNano: null, monthlyBudgetNano: null };
      const { id } = await budgets.create(
        organizationId,
        subject,
        { ...none, ...limits },
        TEST_AUTHOR,
      );
      organizationOf.set(id, organizationId);
      return { budgetId: id, ...subject };
    },
    async changeSubject({ budgetId }, changed) {
      await budgets.change(organizationOf.get(budgetId)!, budgetId, changed, TEST_AUTHOR);
    },
    removeSubject: ({ budgetId }) =>
      budgets.remove(organizationOf.get(budgetId)!, budgetId, TEST_AUTHOR),
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
