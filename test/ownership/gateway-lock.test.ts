import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { keepGatewayLock, takeGatewayLock } from "../../db/queries/instances.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

let database: TestDatabase;
const opened: Database[] = [];
const open = (applicationName: string): Database => {
  const sql = connectDatabase(database, { poolSize: 1, applicationName });
  opened.push(sql);
  return sql;
};
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(async () => {
  await Promise.all(opened.map((sql) => sql.end({ timeout: 1 })));
  await database.drop();
});

test("a gateway takes its lock back from its own session that the server takes for alive", async () => {
  // The client's side of the first one is gone; the server has not noticed.
  const [first, second] = [open("lock-of-one"), open("lock-of-one")];
  expect(await takeGatewayLock(first, "single-node")).toBe(true);
  await until("the lock is taken back", () =>
    keepGatewayLock(second, "single-node").catch(() => false),
  );
  expect(await keepGatewayLock(second, "single-node")).toBe(true);
});

test("another gateway's lock stays with it", async () => {
  const stranger = open("lock-of-another");
  expect(await keepGatewayLock(stranger, "single-node")).toBe(false);
  expect(await keepGatewayLock(opened[1]!, "single-node")).toBe(true);
});
