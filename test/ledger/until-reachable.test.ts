import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { untilReachable } from "../../db/unavailable.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { type CuttingProxy, startCuttingProxy, type Trouble } from "../support/cutting-proxy.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

let database: TestDatabase;
let network: CuttingProxy;
let sql: Database;
beforeAll(async () => {
  database = await createTestDatabase();
  network = await startCuttingProxy(database.url);
  sql = connectDatabase({ url: network.url }, { poolSize: 1, applicationName: "reader" });
});
afterAll(async () => {
  await sql.end({ timeout: 1 });
  await network.stop();
  await database.drop();
});

/** Reads the word; tells how often it was tried. */
async function read(word: string, signal?: AbortSignal): Promise<number> {
  let tries = 0;
  const once = () => {
    tries++;
    return sql`SELECT ${word}::text AS word`.then(([row]) => row!.word as string);
  };
  expect(await untilReachable(systemClock, once, signal)).toBe(word);
  return tries;
}

const TROUBLES: Trouble[] = ["cut before it arrives", "cut while it runs", "lose its reply"];

test.each(TROUBLES)("a read whose connection breaks is made again: %s", async (trouble) => {
  network.arm(trouble, "the word");
  expect(await read("the word")).toBe(2);
});

test("it is made until the database can be reached, and given up after a second", async () => {
  await read("there");
  network.breakDown();
  setTimeout(() => network.restore(), 400);
  expect(await read("back")).toBeGreaterThan(2);
  network.breakDown();
  const beganMs = performance.now();
  expect(await read("gone").catch((error) => error.code)).toBeString();
  expect(performance.now() - beganMs).toBeWithin(950, 2_000);
  network.restore();
});

test("what the database itself refuses is refused at once, and what nobody waits for is not made again", async () => {
  let tries = 0;
  const refused = untilReachable(systemClock, () => {
    tries++;
    return sql`SELECT nothing`;
  });
  expect(await refused.catch((error) => error.code)).toBe("42703");
  expect(tries).toBe(1);
  network.arm("lose its reply", "left");
  await expect(read("left", AbortSignal.abort())).rejects.toThrow("CONNECTION_CLOSED");
});
