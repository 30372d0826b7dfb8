import type { Query } from "../query.ts";

/** Which keys secrets belong to, by hash. Never changes for a hash: a secret is fixed at its key's creation. */
export function findKeysByHash(hashes: readonly string[]): Query<ReadonlyMap<string, string>> {
  return {
    name: "key-find-by-hash",
    tables: ["api_keys"],
    async run(sql) {
      const rows = await sql<{ id: string; key_hash: string }[]>`
        SELECT id, key_hash FROM api_keys
        WHERE key_hash = ANY(${sql.array([...hashes])}::text[]) AND deleted_at IS NULL`;
      return new Map(rows.map((row) => [row.key_hash, row.id]));
    },
  };
}
