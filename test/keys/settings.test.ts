import { expect, test } from "bun:test";
import { getTableColumns } from "drizzle-orm";
import { apiKeys } from "../../db/schema/organizations.ts";
import { SETTING_ROWS } from "../../src/lib/api-key-record.ts";

/** Columns that the manager of a key cannot set. */
const OTHERS = [
  "id",
  "organization_id",
  "kind",
  "key_hash",
  "key_prefix",
  "created_at",
  "deleted_at",
  "last_used_at",
  "playground_holder",
  "version",
];

test("each column of a key is a setting, or is one that its manager cannot set", () => {
  const columns = Object.values(getTableColumns(apiKeys)).map(({ name }) => name);
  const stated = [...OTHERS, ...SETTING_ROWS.map(({ column }) => column)];
  expect(columns.toSorted()).toEqual(stated.toSorted());
});
