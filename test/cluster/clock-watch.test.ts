import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { readDatabaseTime } from "../../db/queries/database-server.ts";
import { type Clock, systemClock, VirtualClock } from "../../src/lib/clock.ts";
import { ClockWatch } from "../../src/platform/cluster/clock-watch.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestGateway } from "../support/gateway.ts";

let database: TestDatabase;
let sql: Database;
beforeAll(async () => {
  database = await createTestDatabase();
  sql = connectDatabase({ url: database.url }, { poolSize: 1, applicationName: "clock" });
});
afterAll(async () => {
  await sql.end();
  await database.drop();
});

function watchAgainst(readTime: () => Promise<number>, clock: Clock) {
  const told: (number | "agreed")[] = [];
  const watch = new ClockWatch({
    clock,
    readDatabaseTime: readTime,
    onApart: (aheadMs) => told.push(aheadMs),
    onAgreed: () => told.push("agreed"),
  });
  return { watch, told };
}

test("clocks that differ are told of once, again when it changes, and when it is over", async () => {
  let offsetMs = 0;
  const clock = new VirtualClock();
  const { watch, told } = watchAgainst(async () => clock.nowMs() + offsetMs, clock);
  await watch.look();
  expect([watch.aheadMs, told]).toEqual([0, []]);
  for (const apartMs of [-1_200_000, -1_200_000, -1_200_500, 1_200_000, 1_500, 0]) {
    offsetMs = apartMs;
    await watch.look();
  }
  expect(told).toEqual([1_200_000, -1_200_000, "agreed"]);
});

test("a slow answer is no difference, and a database out of reach changes nothing", async () => {
  let isThere = true;
  const clock = new VirtualClock();
  const { watch, told } = watchAgainst(async () => {
    if (!isThere) throw new Error("out of reach");
    const readMs = clock.nowMs() + 15_000;
    clock.advance(30_000);
    return readMs;
  }, clock);
  await watch.look();
  expect([watch.aheadMs, told]).toEqual([0, []]);
  isThere = false;
  await watch.look();
  expect([watch.aheadMs, told]).toEqual([0, []]);
});

test("the database's time is that of its machine, which a machine agrees with itself about", async () => {
  const { watch, told } = watchAgainst(() => readDatabaseTime(sql), systemClock);
  await watch.look();
  expect(Math.abs(watch.aheadMs)).toBeLessThan(50);
  expect(told).toEqual([]);
});

test("a gateway looks at its start, and its metrics tell", async () => {
  const gateway = await startTestGateway();
  try {
    const metrics = await (await gateway.request("GET", "/metrics")).text();
    const ahead = /^gateway_clock_ahead_seconds (\S+)$/m.exec(metrics);
    expect(Math.abs(Number(ahead![1]))).toBeLessThan(0.01);
  } finally {
    await gateway.stop();
  }
});
