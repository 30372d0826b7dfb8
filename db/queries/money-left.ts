import { dayAccountId, monthAccountId, orgAccountId } from "../ledger/rows.ts";
import type { Query } from "../query.ts";

/** What an organization and one of its keys have spent, holds left aside. */
export interface MoneyLeft {
  readonly plan: string;
  readonly balanceNano: bigint;
  /** How far the balance may go below zero; null is without limit. */
  readonly creditLimitNano: bigint | null;
  readonly spentTodayNano: bigint;
  readonly spentThisMonthNano: bigint;
}

/** Undefined where there is no such organization. Days and months are those of the given first days. */
export function findMoneyLeft(
  organizationId: string,
  keyId: string,
  day: string,
  month: string,
): Query<MoneyLeft | undefined> {
  return {
    name: "money-left",
    tables: ["organizations", "accounts"],
    async run(sql) {
      const [row] = await sql<
        {
          plan: string;
          balance_nano: bigint;
          credit_limit_nano: bigint | null;
          today_nano: bigint;
          month_nano: bigint;
        }[]
      >`SELECT o.plan, a.credit_nano - a.posted_nano AS balance_nano, a.credit_limit_nano,
          coalesce((SELECT posted_nano FROM accounts WHERE id = ${dayAccountId(keyId, day)}), 0)
            AS today_nano,
          coalesce((SELECT posted_nano FROM accounts WHERE id = ${monthAccountId(keyId, month)}), 0)
            AS month_nano
        FROM organizations o JOIN accounts a ON a.id = ${orgAccountId(organizationId)}
        WHERE o.id = ${organizationId}`;
      return (
        row && {
          plan: row.plan,
          balanceNano: row.balance_nano,
          creditLimitNano: row.credit_limit_nano,
          spentTodayNano: row.today_nano,
          spentThisMonthNano: row.month_nano,
        }
      );
    },
  };
}
