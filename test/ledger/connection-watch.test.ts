import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import {
  ConnectionWatch,
  type RenewableDatabase,
  renewableDatabase,
} from "../../db/connection-watch.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

const POOL_SIZE = 2;
const SLOW_SECONDS = 2.5;

let database: TestDatabase;
let network: CuttingProxy;
let asking: Database;
let pool: RenewableDatabase;
let watch: ConnectionWatch;
const renewed: string[] = [];
beforeAll(async () => {
  database = await createTestDatabase();
  network = await startCuttingProxy(database.url);
  asking = connectDatabase(database, { poolSize: 1, applicationName: "asking" });
  pool = openPool("watched");
  const watched = { database: pool, applicationName: "watched", poolSize: POOL_SIZE };
  watch = new ConnectionWatch(asking, [watched], (name) => void renewed.push(name));
  await asking`CREATE TABLE things (name text PRIMARY KEY)`;
});
afterAll(async () => {
  watch.stop();
  await pool.sql.end({ timeout: 1 });
  await asking.end({ timeout: 1 });
  await network.stop();
  await database.drop();
});

const openPool = (applicationName: string) =>
  renewableDatabase((events) =>
    connectDatabase({ url: network.url }, { poolSize: POOL_SIZE, applicationName, events }),
  );

const codeOf = (failing: Promise<unknown>) =>
  failing.then(
    () => "done",
    (error) => (error as { code: string }).code,
  );

test("a server that is slow, or keeps statements waiting for one another, is left in peace", async () => {
  const { sql } = pool;
  const { promise: isInTheWay, resolve: standInTheWay } = Promise.withResolvers<void>();
  const first = sql.begin(async (transaction) => {
    await transaction`INSERT INTO things VALUES ('one')`;
    standInTheWay();
    await transaction`SELECT pg_sleep(${SLOW_SECONDS})`;
  });
  await isInTheWay;
  const second = sql.begin(async (transaction) => {
    await transaction`INSERT INTO things VALUES ('one') ON CONFLICT DO NOTHING`;
  });
  // These stand behind them, for want of a connection.
  const others = Array.from({ length: 5 }, () => sql`SELECT 1`);
  await Promise.all([first, second, ...others]);
  expect(renewed).toEqual([]);
});

test("of several connections one that has died without a word is noticed, and what was under way on it never comes to be done", async () => {
  const { sql } = pool;
  const busy = (async () => {
    while (renewed.length === 0) await sql`SELECT 1`.catch(() => {});
  })();
  await until("the others are at work", () => pool.underWay.length > 0);
  network.swallow("watched");
  const swallowed = codeOf(sql`INSERT INTO things VALUES ('two')`);
  await until("it is swallowed", () => network.silenced > 0);
  network.letThrough("lost");
  expect(await swallowed).toBe("CONNECTION_DESTROYED");
  await busy;
  expect(renewed).toEqual(["watched"]);
  await sql`INSERT INTO things VALUES ('three')`;
  const rows = await asking<{ name: string }[]>`SELECT name FROM things ORDER BY 1`;
  expect(rows.map(({ name }) => name)).toEqual(["one", "three"]);
});

test("connections that take long to open are left in peace, and counted from when they stand", async () => {
  network.delayConnections(SLOW_SECONDS * 1_000);
  const slow = openPool("slow");
  const watched = { database: slow, applicationName: "slow", poolSize: POOL_SIZE };
  const replaced: string[] = [];
  const slowWatch = new ConnectionWatch(asking, [watched], (name) => void replaced.push(name));
  try {
    expect(slow.isOpen).toBeFalse();
    // Between them both wait for longer than the watch allows a connection that stands.
    const [[first], [second]] = await Promise.all([
      slow.sql`SELECT 1 AS found`,
      slow.sql`SELECT 2 AS found`,
    ]);
    expect([first!.found, second!.found]).toEqual([1, 2]);
    expect(slow.isOpen).toBeTrue();
    expect(replaced).toEqual([]);
  } finally {
    network.delayConnections(0);
    slowWatch.stop();
    await slow.sql.end({ timeout: 1 });
  }
});

test("a connection that is being opened is kept when it is renewed", async () => {
  network.delayConnections(SLOW_SECONDS * 1_000);
  const slow = openPool("slow");
  try {
    const first = slow.sql`SELECT 1 AS found`;
    await until("it is being opened", () => slow.openingCount > 0);
    expect(slow.renew()).toBeFalse();
    expect(await first).toEqual([{ found: 1 }] as never);
  } finally {
    network.delayConnections(0);
    await slow.sql.end({ timeout: 1 });
  }
});

test("a connection that dies silently while it is being opened is replaced by one that is opened beside it", async () => {
  const { silenced } = network;
  network.swallow("lost");
  const lost = openPool("lost");
  try {
    const swallowed = codeOf(lost.sql`SELECT 1`);
    await until("it is swallowed", () => network.silenced > silenced);
    network.letThrough("lost");
    expect(lost.renew()).toBeFalse();
    await lost.whenOpen(5_000);
    expect(await swallowed).toBe("CONNECTION_DESTROYED");
    expect(await codeOf(lost.sql`SELECT 1`)).toBe("done");
  } finally {
    await lost.sql.end({ timeout: 1 });
  }
});
