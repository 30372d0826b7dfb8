import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { ChangeFeed } from "../../src/platform/cluster/change-feed.ts";
import {
  ClusterMembership,
  InstanceLease,
  MAX_WAITING_REQUESTS,
} from "../../src/platform/cluster/membership.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import { type Books, openBooks } from "./books.ts";

let books: Books;
let network: CuttingProxy;
let sql: Database;
let membership: ClusterMembership;
beforeAll(async () => {
  books = await openBooks();
  network = await startCuttingProxy(books.url);
  sql = connectDatabase({ url: network.url }, { poolSize: 1, applicationName: "lock" });
  membership = new ClusterMembership({
    sql,
    instance: books.instance,
    deploymentMode: "single-node",
    lease: new InstanceLease(),
    changeFeed: new ChangeFeed({ sql, onUnknownKind() {} }),
    reconnect() {},
    onLateHeartbeat: async () => {},
    onOrphanedWork() {},
    onFenced() {},
    onError() {},
  });
  await membership.start();
});
afterAll(async () => {
  await membership.stop();
  await sql.end({ timeout: 1 });
  await network.stop();
  await books.close();
});

const codeOf = (waiting: Promise<void> | undefined) =>
  waiting!.then(
    () => "admitted",
    (error: unknown) => (error as { code: string }).code,
  );

test("while the database is away requests are told so and forgotten, and no more wait than may", async () => {
  network.breakDown();
  await until("the changeFeed are old", () => !membership.isFresh);
  const told = Array.from({ length: MAX_WAITING_REQUESTS }, () => codeOf(membership.whenFresh()));
  expect(membership.waitingRequests).toBe(MAX_WAITING_REQUESTS);
  expect(await codeOf(membership.whenFresh())).toBe("database_unavailable");
  expect(membership.waitingRequests).toBe(MAX_WAITING_REQUESTS);
  expect(new Set(await Promise.all(told))).toEqual(new Set(["database_unavailable"]));
  expect(membership.waitingRequests).toBe(0);
});

test("requests that wait are admitted as soon as the database is back", async () => {
  await until("the changeFeed are old", () => !membership.isFresh);
  const told = codeOf(membership.whenFresh());
  network.restore();
  expect(await told).toBe("admitted");
  expect(membership.waitingRequests).toBe(0);
  await until("nobody has to wait", () => membership.whenFresh() === undefined);
});

test("a single-node gateway without requests sends fewer heartbeats, and the next request does not wait", async () => {
  let beats = 0;
  const idle = new ClusterMembership({
    sql,
    instance: books.instance,
    deploymentMode: "single-node",
    lease: new InstanceLease(),
    changeFeed: {
      start() {},
      stop: async () => {},
      report() {},
      reportGap() {},
      recent: async () => {
        beats++;
        return [];
      },
    } as unknown as ChangeFeed,
    reconnect() {},
    onLateHeartbeat: async () => {},
    onOrphanedWork() {},
    onFenced() {},
    onError() {},
  });
  const countOf = async (ms: number) => {
    const before = beats;
    await Bun.sleep(ms);
    return beats - before;
  };
  await idle.start();
  expect(await countOf(2_400)).toBeLessThanOrEqual(4);
  expect(idle.whenFresh()).toBeUndefined();
  await countOf(750);
  expect(await countOf(2_000)).toBeGreaterThanOrEqual(5);
  await idle.stop();
});
