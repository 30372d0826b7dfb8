import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { migrate } from "../../db/migrate.ts";
import { SCOPES } from "../../src/lib/api-key-record.ts";
import { openTestDatabase } from "../support/database.ts";

const MIGRATION = join(import.meta.dir, "../../db/migrations/0011_authority.sql");
/** All that the version before knew. */
const OLD_SCOPES = SCOPES.slice(0, 14);

test("a key with all scopes of the version before gets all, one that lacks one gets none; both are counted", async () => {
  const { url, sql, drop } = await openTestDatabase(1);
  try {
    await migrate({ url });
    await sql`INSERT INTO organizations (id, name, plan) VALUES ('org_1', 'One', 'free')`;
    const insert = (id: string, scopes: readonly string[]) => sql`
      INSERT INTO api_keys (id, organization_id, kind, name, key_hash, key_prefix, scopes)
      VALUES (${id}, 'org_1', 'secret', ${id}, ${id}, 'gateway_sk_…', ${sql.array([...scopes])})`;
    await insert("key_all", OLD_SCOPES);
    await insert("key_some", OLD_SCOPES.slice(1));
    await sql`UPDATE organizations SET key_count = 0`;
    // What the migration does with the rows it finds.
    const statements = readFileSync(MIGRATION, "utf8").split("--> statement-breakpoint");
    for (const statement of statements.filter((text) =>
      /^UPDATE (api_keys|organizations)/m.test(text),
    )) {
      if (!statement.includes("CREATE")) await sql.unsafe(statement);
    }
    const rows = await sql<{ id: string; scopes: string[] }[]>`
      SELECT id, scopes FROM api_keys WHERE organization_id = 'org_1' ORDER BY id`;
    expect(rows.map(({ scopes }) => scopes)).toEqual([[...SCOPES, "*"], OLD_SCOPES.slice(1)]);
    const [{ key_count }] = await sql<[{ key_count: number }]>`
      SELECT key_count FROM organizations WHERE id = 'org_1'`;
    expect(key_count).toBe(2);
  } finally {
    await drop();
  }
}, 60_000);
