import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect, createServer, type Socket } from "node:net";
import { connectDatabase, type Database, retryDelaySeconds } from "../../db/client.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startStopwatch } from "../support/stopwatch.ts";

/*
 * What the ledger relies on where a connection breaks, and what the driver does only with its patch in
 * db/patches.
 */

let database: TestDatabase;
let proxy: CuttingProxy;
let sql: Database;
beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startCuttingProxy(database.url);
  sql = connectDatabase({ url: proxy.url }, { poolSize: 1, applicationName: "driver" });
  await sql`CREATE TABLE marks (name text)`;
});
afterAll(async () => {
  await sql.end({ timeout: 1 });
  await proxy.stop();
  await database.drop();
});

async function marks(): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`SELECT name FROM marks ORDER BY 1`;
  return rows.map(({ name }) => name);
}

test("a transaction whose connection is gone writes nothing into the one that follows it", async () => {
  let goOn = (): void => {};
  const isNextOpen = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const afterwards: unknown[] = [];
  const dead = sql.begin(async (transaction) => {
    await transaction`INSERT INTO marks VALUES ('dead before')`;
    proxy.breakDown();
    proxy.restore();
    await isNextOpen;
    await transaction`INSERT INTO marks VALUES ('dead afterwards')`.catch((error) =>
      afterwards.push((error as { code: string }).code),
    );
  });
  expect(await dead.catch((error) => (error as { code: string }).code)).toBe("CONNECTION_CLOSED");
  await sql.begin(async (transaction) => {
    await transaction`INSERT INTO marks VALUES ('living one')`;
    goOn();
    await transaction`INSERT INTO marks VALUES ('living two')`;
  });
  expect(await marks()).toEqual(["living one", "living two"]);
  expect(afterwards).toEqual(["CONNECTION_CLOSED"]);
});

test("a statement sent in the moment in which the connection closes does not keep the next one from opening", async () => {
  let trigger: Socket | undefined;
  const server = createServer((socket) => {
    trigger = socket;
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const triggered = connect((server.address() as { port: number }).port, "127.0.0.1");
  await new Promise<void>((resolve) => triggered.once("connect", resolve));
  await new Promise<void>((resolve) => {
    if (trigger) resolve();
    else server.once("connection", () => resolve());
  });
  for (let i = 0; i < 6; i++) {
    await sql`SELECT 1`;
    const sent = new Promise<unknown>((resolve) => {
      triggered.once("data", () => resolve(sql`SELECT 2`.catch(() => {})));
    });
    trigger!.write("now");
    proxy.breakDown();
    proxy.restore();
    await sent;
    const elapsedMs = startStopwatch();
    await sql`SELECT 3`;
    // Otherwise it ends after the connect timeout of five seconds, at the earliest.
    expect(elapsedMs()).toBeLessThan(4_000);
  }
  triggered.destroy();
  server.close();
}, 60_000);

test("a server that closes new connections without a word refuses what opened them", async () => {
  const silent = createServer((socket) => {
    socket.once("data", () => socket.end());
  });
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const { port } = silent.address() as { port: number };
  const url = `postgres://postgres@127.0.0.1:${port}/any`;
  const behindIt = connectDatabase({ url }, { poolSize: 1, applicationName: "driver" });
  for (let i = 0; i < 2; i++) {
    const failure = await behindIt`SELECT 1`.catch((error) => error as { code: string });
    expect(failure).toHaveProperty("code", "CONNECTION_CLOSED");
  }
  await behindIt.end({ timeout: 1 });
  silent.close();
});

test("a query waits for the connection that is free first, not for the one that is opened for it", async () => {
  const pool = connectDatabase({ url: proxy.url }, { poolSize: 2, applicationName: "driver" });
  await pool`SELECT 1`;
  proxy.delayConnections(60_000);
  try {
    const both = await Promise.all([pool`SELECT 1 AS found`, pool`SELECT 2 AS found`]);
    expect(both.map(([row]) => row!.found)).toEqual([1, 2]);
  } finally {
    proxy.delayConnections(0);
    await pool.end({ timeout: 0 });
  }
});

test("tries to connect are spread over a time that doubles with each failure, up to a second", () => {
  for (const [failures, mostSeconds] of [
    [0, 0.1],
    [1, 0.2],
    [3, 0.8],
    [4, 1],
    [40, 1],
  ] as const) {
    const delays = Array.from({ length: 1_000 }, () => retryDelaySeconds(failures));
    expect(Math.max(...delays)).toBeWithin(mostSeconds * 0.9, mostSeconds);
    expect(Math.min(...delays)).toBeWithin(0, mostSeconds * 0.1);
  }
});
