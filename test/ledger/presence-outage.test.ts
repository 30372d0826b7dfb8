import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { ChangeNews } from "../../src/cluster/change-feed.ts";
import { MAX_WAITING_REQUESTS, Presence } from "../../src/cluster/membership.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import { type Books, openBooks } from "./books.ts";

let books: Books;
let network: CuttingProxy;
let sql: Database;
let presence: Presence;
beforeAll(async () => {
  books = await openBooks();
  network = await startCuttingProxy(books.url);
  sql = connectDatabase({ url: network.url }, { poolSize: 1, applicationName: "lock" });
  presence = new Presence({
    sql,
    instance: books.instance,
    company: "alone",
    news: new ChangeNews({ sql, onChange() {}, onGap() {} }),
    reconnect() {},
    onGap() {},
    onLateHeartbeat: async () => {},
    onEstate() {},
    onFenced() {},
    onError() {},
  });
  await presence.start();
});
afterAll(async () => {
  await presence.stop();
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
  await until("the news are old", () => !presence.isFresh);
  const told = Array.from({ length: MAX_WAITING_REQUESTS }, () => codeOf(presence.whenFresh()));
  expect(presence.waitingRequests).toBe(MAX_WAITING_REQUESTS);
  expect(await codeOf(presence.whenFresh())).toBe("database_unavailable");
  expect(presence.waitingRequests).toBe(MAX_WAITING_REQUESTS);
  expect(new Set(await Promise.all(told))).toEqual(new Set(["database_unavailable"]));
  expect(presence.waitingRequests).toBe(0);
});

test("requests that wait are admitted as soon as the database is back", async () => {
  await until("the news are old", () => !presence.isFresh);
  const told = codeOf(presence.whenFresh());
  network.restore();
  expect(await told).toBe("admitted");
  expect(presence.waitingRequests).toBe(0);
  await until("nobody has to wait", () => presence.whenFresh() === undefined);
});
