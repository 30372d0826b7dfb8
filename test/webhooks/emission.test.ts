import { afterAll, beforeAll, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import type { OutboxEvent } from "../../db/queries/outbox.ts";
import { Subscriptions } from "../../src/inference/call/completion-events.ts";
import { newId } from "../../src/lib/ids.ts";
import { EventWriter } from "../../src/webhooks/outbox.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { refuseRows } from "../support/unwilling-table.ts";
import { addHook, addOrganization } from "./many-hooks.ts";

let database: OpenTestDatabase;
let proxy: CuttingProxy;
let sql: Database;
let unreliable: Database;
beforeAll(async () => {
  database = await openTestDatabase(2);
  proxy = await startCuttingProxy(database.url);
  ({ sql } = database);
  unreliable = connectDatabase({ url: proxy.url }, { poolSize: 1, applicationName: "writer" });
});
afterAll(async () => {
  await unreliable.end({ timeout: 1 });
  await proxy.stop();
  await database.drop();
});

const addHookTo = (organizationId: string) => addHook(sql, organizationId);

test("which types are wanted is read once for an organization, and again once that may have changed", async () => {
  const organizationId = await addOrganization(sql);
  const subscriptions = new Subscriptions(sql);
  expect(await subscriptions.wants(organizationId, "completion.error")).toBeFalse();
  await addHookTo(organizationId);
  // Known, and so told at once.
  expect(subscriptions.wants(organizationId, "completion.error")).toBeFalse();
  subscriptions.forget(organizationId);
  expect(await subscriptions.wants(organizationId, "completion.error")).toBeTrue();
  await sql`UPDATE webhooks SET events = '{key.created}' WHERE organization_id = ${organizationId}`;
  subscriptions.forgetAll();
  expect(await subscriptions.wants(organizationId, "completion.error")).toBeFalse();
  expect(subscriptions.wants(organizationId, "key.created")).toBeTrue();
});

test("what was read before a change is not remembered behind it", async () => {
  const organizationId = await addOrganization(sql);
  const subscriptions = new Subscriptions(sql);
  const before = subscriptions.wants(organizationId, "completion.error");
  // While it is being read.
  subscriptions.forget(organizationId);
  await before;
  await addHookTo(organizationId);
  expect(await subscriptions.wants(organizationId, "completion.error")).toBeTrue();
});

test("events of failed requests outlast an outage of the database, in bounded number, each once", async () => {
  const organizationId = await addOrganization(sql);
  const errors: unknown[] = [];
  let written = 0;
  const writer = new EventWriter({
    sql: unreliable,
    onWritten: () => void written++,
    onError: (error) => void errors.push(error),
  });
  const eventOf = (eventId: string): OutboxEvent => ({
    eventId,
    organizationId,
    type: "completion.error",
    data: {},
  });
  proxy.breakDown();
  const repeated = newId("evt");
  writer.add(eventOf(repeated));
  writer.add(eventOf(repeated));
  for (let i = 2; i < 10_050; i++) writer.add(eventOf(newId("evt")));
  await until("it was tried in vain", () => proxy.refusals > 0);
  proxy.restore();
  await until("the queue is written", () => errors.length > 0);
  await writer.close(5_000);
  const [row] =
    await sql`SELECT count(*)::int AS events FROM outbox WHERE organization_id = ${organizationId}`;
  expect(row!.events).toBe(9_999);
  expect(String(errors[0])).toContain("50 events");
  expect(written).toBeGreaterThan(10);
});

test("events of failed requests wait while the database refuses them", async () => {
  const organizationId = await addOrganization(sql);
  const errors: unknown[] = [];
  const writer = new EventWriter({
    sql,
    onWritten() {},
    onError: (error) => void errors.push(error),
  });
  const outbox = await refuseRows(sql, "outbox", "53100");
  writer.add({ eventId: newId("evt"), organizationId, type: "completion.error", data: {} });
  await until("it is refused", async () => (await outbox.refusals()) > 0);
  await outbox.relent();
  await writer.close(5_000);
  const rows = await sql`SELECT 1 FROM outbox WHERE organization_id = ${organizationId}`;
  expect(rows).toHaveLength(1);
  expect(errors).toEqual([]);
});
