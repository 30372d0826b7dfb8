import { describe, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { readMasterKey } from "../../db/queries/master-key.ts";
import { SEALED_TABLES } from "../../db/queries/sealed-values.ts";
import {
  examineKeyring,
  MasterKeyError,
  type MasterKeys,
  openKeyring,
} from "../../src/platform/master-key/master-key.ts";
import {
  addSealedResults,
  addSealedWebhooks,
  base64,
  beforeEachOnDatabase,
  newKey,
  opens,
  type SealedDatabase,
} from "./sealed-database.ts";

let database: SealedDatabase;
let sql: Database;
beforeEachOnDatabase((opened) => {
  database = opened;
  sql = opened.sql;
});

const keysOf = (main: Uint8Array, ...others: Uint8Array[]): MasterKeys => ({
  main,
  others,
  hasNext: false,
  source: "GATEWAY_MASTER_KEY",
  remedy: "set the right one",
});
const refusalOf = async (keys: MasterKeys): Promise<string> => {
  const error = await openKeyring(sql, keys).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(MasterKeyError);
  const { message } = error as Error;
  expect(message).not.toContain("\n");
  for (const key of [keys.main, ...keys.others]) expect(message).not.toContain(base64(key));
  return message;
};

test("every column of bytes in the schema is named among the sealed ones, or is known not to be", async () => {
  const rows = await sql<{ name: string }[]>`SELECT table_name || '.' || column_name AS name
    FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'bytea'`;
  const sealed = SEALED_TABLES.flatMap(({ table, columns }) =>
    columns.map((column) => `${table}.${column}`),
  );
  const names = rows.map(({ name }) => name).sort();
  // Of texts that are not sealed either: docs/reference/api/vector-stores.md.
  const open = [
    ...["master_key.proof", "master_key.salt", "passkeys.public_key", "vector_store_vectors.bytes"],
  ];
  expect(names).toEqual([...sealed, ...open].sort());
});

describe("the first use", () => {
  test("writes down a constant that only that key opens, and nothing of the key", async () => {
    const [key, other] = [newKey(), newKey()];
    await openKeyring(sql, keysOf(key));
    const row = (await readMasterKey(sql))!;
    expect(opens(key, row.proof)).toBe(true);
    expect(opens(other, row.proof)).toBe(false);
    expect(row.previousKeyId).toBeNull();
    const stored = Buffer.concat([row.salt, Buffer.from(row.keyId, "hex"), row.proof]);
    for (let from = 0; from + 8 <= key.length; from++) {
      expect(stored.includes(key.subarray(from, from + 8))).toBe(false);
    }
    expect((await openKeyring(sql, keysOf(key))).isBeingReplaced).toBe(false);
    expect(await refusalOf(keysOf(other))).toBe(
      "GATEWAY_MASTER_KEY is not the master key that this database is sealed with: set the right one",
    );
    expect(await readMasterKey(sql)).toEqual(row);
  });

  test("is that of one key, however many instances start at once with two of them", async () => {
    const keys = [newKey(), newKey()];
    const sessions = Array.from({ length: 12 }, () =>
      connectDatabase(database, { poolSize: 1, applicationName: "start" }),
    );
    const outcomes = await Promise.allSettled(
      sessions.map((session, n) => openKeyring(session, keysOf(keys[n % 2]!))),
    );
    await Promise.all(sessions.map((session) => session.end()));
    const [{ count }] = (await sql`SELECT count(*)::int AS count FROM master_key`) as [
      { count: number },
    ];
    expect(count).toBe(1);
    const winner = keys.findIndex((_, n) => outcomes[n]!.status === "fulfilled");
    expect(opens(keys[winner]!, (await readMasterKey(sql))!.proof)).toBe(true);
    for (const [n, outcome] of outcomes.entries()) {
      expect(outcome.status).toBe(n % 2 === winner ? "fulfilled" : "rejected");
      if (outcome.status === "rejected") expect(outcome.reason).toBeInstanceOf(MasterKeyError);
    }
  });
});

describe("a database that an earlier version has sealed values in", () => {
  test.each(["webhooks", "results"])(
    "is taken for that of the key that opens them, and of no other: %s",
    async (kind) => {
      const [key, other] = [newKey(), newKey()];
      if (kind === "webhooks") await addSealedWebhooks(sql, key, 3);
      else await addSealedResults(sql, key, ["one"]);
      await refusalOf(keysOf(other));
      expect(await examineKeyring(sql, keysOf(other)).catch((error) => error)).toBeInstanceOf(
        MasterKeyError,
      );
      expect(await readMasterKey(sql)).toBeUndefined();
      const found = await examineKeyring(sql, keysOf(key));
      expect(found?.isBeingReplaced).toBe(false);
      expect(await readMasterKey(sql)).toBeUndefined();
      await openKeyring(sql, keysOf(key));
      expect(opens(key, (await readMasterKey(sql))!.proof)).toBe(true);
    },
  );

  test("is taken for that of the key before, where a rotation is prepared", async () => {
    const [before, next] = [newKey(), newKey()];
    await addSealedWebhooks(sql, before, 2);
    const { keyring, isBeingReplaced } = await openKeyring(sql, keysOf(next, before));
    expect(isBeingReplaced).toBe(true);
    expect(keyring.sealingKey).toEqual(before);
    expect((await readMasterKey(sql))!.previousKeyId).toBeNull();
  });

  test("and that was started with two keys by turns keeps both until all is sealed with one", async () => {
    const [before, next] = [newKey(), newKey()];
    await addSealedWebhooks(sql, before, 2);
    await addSealedResults(sql, next, ["one"]);
    const { keyring, isBeingReplaced } = await openKeyring(sql, keysOf(next, before));
    expect(isBeingReplaced).toBe(true);
    expect(keyring.sealingKey).toEqual(next);
    expect(await refusalOf(keysOf(next))).toContain("GATEWAY_MASTER_KEY_PREVIOUS");
  });

  test("and in which nothing is sealed is taken for that of the key before too, where one is named", async () => {
    const [before, next] = [newKey(), newKey()];
    expect(await examineKeyring(sql, keysOf(next, before))).toBeUndefined();
    const { keyring, isBeingReplaced } = await openKeyring(sql, keysOf(next, before));
    expect(isBeingReplaced).toBe(true);
    expect(keyring.sealingKey).toEqual(before);
  });
});
