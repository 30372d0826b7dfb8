import { afterEach, beforeEach, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { readFunctions } from "../../db/functions.ts";
import { migrate, readMigrationState } from "../../db/migrate.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";

let database: OpenTestDatabase;
let sql: Database;
beforeEach(async () => {
  database = await openTestDatabase(1);
  ({ sql } = database);
});
afterEach(() => database.drop());

async function namesInDatabase(): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT proname AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'
    ORDER BY proname COLLATE "C"`;
  return rows.map(({ name }) => name);
}

const definitionOf = async (name: string) => {
  const [row] = await sql<{ text: string }[]>`
    SELECT pg_get_functiondef(oid) AS text FROM pg_proc WHERE proname = ${name}`;
  return row?.text;
};

/** Applies the functions, and returns the lines that the migration logs. */
async function start(): Promise<string[]> {
  const lines: string[] = [];
  await migrate(database, (line) => void lines.push(line));
  return lines;
}

test("each function of the database is in one file, and each file has been applied", async () => {
  const functions = await readFunctions();
  expect(await namesInDatabase()).toEqual(functions.map(({ name }) => name));
  for (const { name, text } of functions) {
    const created = [...text.matchAll(/^CREATE OR REPLACE FUNCTION (\w+)/gm)];
    expect(created.map(([, created]) => created)).toEqual([name]);
  }
  const applied =
    await sql`SELECT name, hash FROM drizzle.applied_functions ORDER BY name COLLATE "C"`;
  expect(applied.map((row) => ({ ...row }))).toEqual(
    functions.map(({ name, hash }) => ({ name, hash })),
  );
});

test("each function is valid for the tables of the baseline", async () => {
  for (const { text } of await readFunctions()) await sql.unsafe(text);
});

test("a file begins with a comment", async () => {
  for (const { name, text } of await readFunctions()) {
    expect({ name, begins: text.slice(0, 3) }).toEqual({ name, begins: "-- " });
  }
});

test("a function whose file has changed is applied again, once", async () => {
  const before = await definitionOf("instance_lease");
  await sql.unsafe(`CREATE OR REPLACE FUNCTION instance_lease() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '9 seconds' $$`);
  await sql`UPDATE drizzle.applied_functions SET hash = 'earlier' WHERE name = 'instance_lease'`;
  expect((await readMigrationState(sql)).pending).toEqual(["functions"]);
  const lines = await start();
  expect(lines[0]).toBe("migrating the database: 1 to apply: functions");
  expect(await definitionOf("instance_lease")).toBe(before);
  expect(await start()).toEqual([]);
});

test("a function whose file is gone is dropped, unless a trigger needs it", async () => {
  await sql.unsafe(`CREATE FUNCTION former(p_id text) RETURNS text LANGUAGE sql AS $$ SELECT p_id $$;
    CREATE FUNCTION needed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
    CREATE TRIGGER needs AFTER INSERT ON changes FOR EACH ROW EXECUTE FUNCTION needed()`);
  await sql`INSERT INTO drizzle.applied_functions (name, hash, version)
    VALUES ('former', '', '0.0.1'), ('needed', '', '0.0.1')`;
  await start();
  const names = await namesInDatabase();
  expect(names).not.toContain("former");
  expect(names).toContain("needed");
  expect((await readMigrationState(sql)).pending).toEqual([]);
  await sql`DROP TRIGGER needs ON changes`;
  await start();
  expect(await namesInDatabase()).not.toContain("needed");
});

test("an earlier version that starts again leaves the functions of a later one", async () => {
  await sql`UPDATE drizzle.applied_functions SET hash = 'later', version = '999.0.0'
    WHERE name = 'instance_lease'`;
  expect((await readMigrationState(sql)).pending).toEqual([]);
  expect(await start()).toEqual([]);
});

test("a function that cannot be applied ends the start, and names itself", async () => {
  await sql.unsafe("DROP FUNCTION usage_bucket(double precision)");
  await sql.unsafe(
    "CREATE FUNCTION usage_bucket(p_ms double precision) RETURNS text LANGUAGE sql AS $$ SELECT '' $$",
  );
  await sql`UPDATE drizzle.applied_functions SET hash = 'earlier' WHERE name = 'usage_bucket'`;
  await expect(start()).rejects.toThrow(
    "migration functions: usage_bucket: cannot change return type of existing function",
  );
});
