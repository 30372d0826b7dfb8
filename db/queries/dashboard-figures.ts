import type { Query } from "../client.ts";
import { orgAccountId } from "../ledger/rows.ts";

/** A text that changes with every transaction and every failed request of an organization. */
export function figuresMark(organizationId: string): Query<string> {
  return {
    name: "dashboard-figures-mark",
    tables: ["accounts", "failed_requests"],
    async run(sql) {
      const [row] = await sql<{ sequence: bigint; failure: string | null }[]>`
        SELECT sequence, (SELECT id FROM failed_requests
          WHERE organization_id = ${organizationId} AND NOT is_charged
          ORDER BY position DESC, created_at DESC, id DESC LIMIT 1) AS failure
        FROM accounts WHERE id = ${orgAccountId(organizationId)}`;
      return `${row?.sequence ?? 0n} ${row?.failure ?? ""}`;
    },
  };
}
