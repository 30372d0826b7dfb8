import type { Database } from "../../db/client.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { SCOPES } from "../../src/lib/api-key-record.ts";
import { newId } from "../../src/lib/ids.ts";

/** Looked after at each request, and never reached. */
const RATE_LIMIT_RPM = 100_000_000;
const DAILY_BUDGET_NANO = 500_000_000_000_000n;
const MONTHLY_BUDGET_NANO = 900_000_000_000_000n;

/** Secret keys of the gateway's first organization, each with a rate limit and both budgets. */
export async function createKeys(sql: Database, count: number): Promise<string[]> {
  const keys = Array.from({ length: count }, () => generateApiKey("secret"));
  const rows = keys.map(({ hash, prefix }) => ({ id: newId("key"), hash, prefix }));
  const inserted = await sql`
    INSERT INTO api_keys (id, organization_id, kind, name, key_hash, key_prefix, scopes,
      rate_limit_rpm, daily_budget_nano, monthly_budget_nano)
    SELECT k.id, o.id, 'secret', 'Bench ' || k.id, k.hash, k.prefix, ARRAY(SELECT jsonb_array_elements_text(${sql.json([...SCOPES])})),
      ${RATE_LIMIT_RPM}, ${DAILY_BUDGET_NANO}, ${MONTHLY_BUDGET_NANO}
    FROM jsonb_to_recordset(${sql.json(rows)}) AS k (id text, hash text, prefix text),
      (SELECT id FROM organizations ORDER BY created_at LIMIT 1) o`;
  if (inserted.count !== count) throw new Error("the gateway created no organization");
  return keys.map(({ key }) => key);
}
