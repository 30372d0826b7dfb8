import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { SETTING_ROWS } from "../../src/lib/api-key-record.ts";
import { openTestDatabase } from "../support/database.ts";

/*
 * Entries of whole objects show every column that audited_fields does not hide. So a new column of an audited table is
 * shown, unless it is hidden. Each column of the audited tables is tried with each of their triggers.
 */

let database: Awaited<ReturnType<typeof openTestDatabase>>;
let shown: readonly ShownColumn[];
beforeAll(async () => {
  database = await openTestDatabase(1);
  shown = await shownColumns(database.sql);
}, 60_000);
afterAll(() => database.drop());

interface ShownColumn {
  readonly action: string;
  readonly table: string;
  readonly column: string;
  readonly type: string;
}

/** Returns the columns that audit entries show, with the actions of the entries. */
async function shownColumns(sql: Database): Promise<ShownColumn[]> {
  const triggers = await sql<{ table: string; args: string; columns: [string, string][] }[]>`
    SELECT relname AS table, encode(tgargs, 'escape') AS args,
      (SELECT jsonb_agg(jsonb_build_array(attname, format_type(atttypid, NULL))) FROM pg_attribute
        WHERE attrelid = tgrelid AND attnum > 0 AND NOT attisdropped) AS columns
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE tgfoid = 'audit_row'::regproc`;
  const found: ShownColumn[] = [];
  for (const { table, args, columns } of triggers) {
    const [action = "", , , ...stated] = args.split("\\000").slice(0, -1);
    for (const [column, type] of columns) {
      const row = { [column]: column === "body" ? { body: 1 } : 1 };
      const [fields] = await sql<{ shown: Record<string, unknown> }[]>`
        SELECT audited_fields(${JSON.stringify(row)}::text::jsonb, ${sql.array(stated)}::text[]) AS shown`;
      const isShown = Object.values(fields!.shown).some((value) => value !== null);
      if (isShown) found.push({ action, table, column, type });
    }
  }
  return found;
}

const SECRET = /hash|secret|sealed|token|proof|salt|delivery_id_key/;
const isSecret = ({ column, type }: ShownColumn) => type === "bytea" || SECRET.test(column);

test("no audit entry shows bytes, a secret or a hash of one", () => {
  expect(shown.length).toBeGreaterThan(50);
  expect(shown.filter(isSecret)).toEqual([]);
});

test("a new column of bytes is found until it is hidden", async () => {
  await database.sql`ALTER TABLE webhooks ADD COLUMN certificate bytea`;
  const found = (await shownColumns(database.sql)).filter(isSecret);
  await database.sql`ALTER TABLE webhooks DROP COLUMN certificate`;
  expect(found.map(({ action, column }) => [action, column]).toSorted()).toEqual([
    ["webhook.created", "certificate"],
    ["webhook.deleted", "certificate"],
    ["webhook.updated", "certificate"],
  ]);
});

test.each(["key.created", "key.updated", "key.deleted"])(
  "%s shows every setting of the key",
  (action) => {
    const columns = shown.filter((entry) => entry.action === action).map(({ column }) => column);
    const settings = SETTING_ROWS.map(({ column }) => column);
    expect(columns.toSorted()).toEqual([...settings, "kind", "key_prefix"].toSorted());
  },
);
