import type { Query } from "../query.ts";

/** Which key a secret belongs to. Never changes for a hash: a key's secret is fixed at its creation. */
export function findKeyByHash(
  hash: string,
): Query<{ keyId: string; organizationId: string } | undefined> {
  return {
    name: "key-find-by-hash",
    tables: ["api_keys"],
    async run(sql) {
      const [row] = await sql<{ id: string; organization_id: string }[]>`
        SELECT id, organization_id FROM api_keys WHERE key_hash = ${hash} AND deleted_at IS NULL`;
      return row && { keyId: row.id, organizationId: row.organization_id };
    },
  };
}
