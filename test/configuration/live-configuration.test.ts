import { expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { connectDatabase } from "../../db/client.ts";
import type { StoredEntry } from "../../db/queries/configuration.ts";
import { LiveConfiguration } from "../../src/inference/models/live-configuration.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { createTestDatabase } from "../support/database.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";

const entry: StoredEntry = {
  kind: "provider",
  id: "later",
  version: 1,
  body: { type: "openai-compatible", base_url: "http://127.0.0.1:1/v1" },
  secret: null,
  unreachableSinceMs: null,
  createdAtMs: 0,
  updatedAtMs: 0,
};

test("a change whose read fails is read again until it is in force", async () => {
  const database = await createTestDatabase();
  const sql: Database = connectDatabase(database, { poolSize: 1, applicationName: "test" });
  let entries: StoredEntry[] = [];
  let failures = 0;
  const errors: unknown[] = [];
  const live = new LiveConfiguration({
    base: {
      providers: [],
      models: [],
      aliases: [],
      prices: [],
      sandbox: false,
      providersOfFile: [],
    },
    background: sql,
    keyring: await testKeyring(sql),
    clock: systemClock,
    connectTimeoutMs: 1_000,
    shared: {
      clock: systemClock,
      httpClient: { send: () => {} } as never,
      workThread: { call: () => Promise.reject(new Error("not used")) },
      providerFactories: {},
    },
    builtIn: async () => ({ models: [], leftOut: [] }) as never,
    async read() {
      if (failures-- > 0) throw new Error("the database is away");
      return entries as never;
    },
    onReport() {},
    onError: (error) => errors.push(error),
  });
  try {
    await live.open(new Map());
    entries = [entry];
    failures = 2;
    live.follow();
    live.follow();
    await until("the provider is in force", () => live.providers.has("later"));
    expect(errors).toHaveLength(2);
    entries = [];
    live.follow();
    await until("the provider is removed", () => !live.providers.has("later"));
  } finally {
    live.stop();
    await sql.end();
    await database.drop();
  }
});
