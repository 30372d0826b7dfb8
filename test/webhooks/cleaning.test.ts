import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { removeOldEvents } from "../../db/queries/deliveries.ts";
import { deleteWebhook } from "../../db/queries/webhooks.ts";
import { cleanWebhooks } from "../../src/webhooks/outbox.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { addHook, addOnlyOrganization, emit, numberAll } from "./many-hooks.ts";

let database: OpenTestDatabase;
let sql: Database;
let organizationId: string;
beforeAll(async () => {
  database = await openTestDatabase(2);
  ({ sql } = database);
});
afterAll(() => database.drop());
beforeEach(async () => {
  organizationId = await addOnlyOrganization(sql);
});

const hookOf = () => addHook(sql, organizationId);
const clean = (maxRows?: number) => cleanWebhooks(sql, () => {}, maxRows);

const number = () => numberAll(sql);

async function age(days: number): Promise<void> {
  await sql`UPDATE outbox SET created_at = created_at - make_interval(days => ${days})`;
  await sql`UPDATE deliveries SET created_at = created_at - make_interval(days => ${days}),
    finished_at = finished_at - make_interval(days => ${days})`;
  await sql`UPDATE webhooks SET disabled_at = disabled_at - make_interval(days => ${days})`;
}

async function finish(): Promise<void> {
  await sql`UPDATE deliveries SET status = 'delivered', finished_at = clock_timestamp() WHERE status = 'pending'`;
}

async function counts(): Promise<{ events: number; deliveries: number }> {
  const [row] = await sql<{ events: number; deliveries: number }[]>`
    SELECT (SELECT count(*)::int FROM outbox) AS events, (SELECT count(*)::int FROM deliveries) AS deliveries`;
  return { ...row! };
}

test("an event is kept until it is delivered to all, then for seven days, and its delivery for thirty", async () => {
  await hookOf();
  await emit(sql, organizationId, [1]);
  await age(8);
  await clean();
  // It has no number yet.
  expect(await counts()).toEqual({ events: 1, deliveries: 0 });
  await number();
  await age(8);
  await clean();
  expect(await counts()).toEqual({ events: 1, deliveries: 1 });
  await finish();
  await age(6);
  await clean();
  expect(await counts()).toEqual({ events: 1, deliveries: 1 });
  await age(2);
  await clean();
  expect(await counts()).toEqual({ events: 0, deliveries: 1 });
  await age(20);
  await clean();
  expect(await counts()).toEqual({ events: 0, deliveries: 0 });
});

test("an event that no webhook wants goes after seven days", async () => {
  await emit(sql, organizationId, [1]);
  await number();
  await age(6);
  await clean();
  expect((await counts()).events).toBe(1);
  await age(2);
  await clean();
  expect((await counts()).events).toBe(0);
});

test("what waits behind a disabled webhook is dropped after three days, and that is told", async () => {
  const disabled = await hookOf();
  await hookOf();
  await sql`UPDATE webhooks SET enabled = false, disabled_at = clock_timestamp() WHERE id = ${disabled}`;
  await emit(sql, organizationId, [1, 2]);
  await number();
  const told: unknown[] = [];
  const run = () => cleanWebhooks(sql, (id, count) => void told.push([id, count]));
  await age(2);
  await run();
  expect(told).toEqual([]);
  await age(2);
  await emit(sql, organizationId, [3]);
  await number();
  await run();
  expect(told).toEqual([[disabled, 2]]);
  const rows =
    await sql`SELECT webhook_id = ${disabled} AS is_disabled, status FROM deliveries ORDER BY 1, sequence`;
  expect(rows.map(({ status }) => status)).toEqual([
    "pending",
    "pending",
    "pending",
    "dropped",
    "dropped",
    "pending",
  ]);
});

test("one that was disabled a moment ago keeps what had waited for longer", async () => {
  await hookOf();
  await emit(sql, organizationId, [1]);
  await number();
  await age(5);
  await sql`UPDATE webhooks SET enabled = false, disabled_at = clock_timestamp()`;
  await clean();
  const [row] = await sql`SELECT status FROM deliveries`;
  expect(row!.status).toBe("pending");
});

test("the deliveries and the lease of a deleted webhook go, the other's stay", async () => {
  const [deleted, other] = [await hookOf(), await hookOf()];
  await emit(sql, organizationId, [1, 2, 3]);
  await number();
  await sql`INSERT INTO actor_leases (kind, id, epoch) SELECT 'webhook', id, 1 FROM webhooks`;
  await sql`DELETE FROM webhooks WHERE id = ${deleted}`;
  await clean();
  expect((await counts()).deliveries).toBe(3);
  const leases = await sql`SELECT id FROM actor_leases`;
  expect(leases.map(({ id }) => id)).toEqual([other]);
});

test("what a webhook leaves that was deleted before anybody acted for it goes too", async () => {
  const hook = await hookOf();
  await emit(sql, organizationId, [1, 2, 3]);
  await number();
  expect(await deleteWebhook(sql, { id: hook, organizationId })).toBeTrue();
  // With fewer rows a statement than it has left.
  await clean(2);
  expect((await counts()).deliveries).toBe(0);
  expect(await sql`SELECT 1 FROM actor_leases`).toHaveLength(0);
});

test("an event of a type that was subscribed to later is not kept for that", async () => {
  await hookOf();
  await sql`UPDATE webhooks SET events = '{cache.purged}'`;
  await emit(sql, organizationId, [1]);
  await number();
  await sql`UPDATE webhooks SET events = '{*}'`;
  await age(8);
  await clean();
  expect((await counts()).events).toBe(0);
});

test("one statement looks at no more than its limit, and the next goes on behind it", async () => {
  const hook = await hookOf();
  await emit(sql, organizationId, [1, 2, 3, 4, 5]);
  await number();
  await age(8);
  await finish();
  // The first two are still to be delivered.
  await sql`UPDATE deliveries SET status = 'pending', finished_at = NULL WHERE webhook_id = ${hook}
    AND outbox_id IN (SELECT id FROM outbox ORDER BY id LIMIT 2)`;
  await sql`UPDATE deliveries SET finished_at = finished_at - interval '8 days'`;
  const behind = await removeOldEvents(sql, 0n, 2);
  expect((await counts()).events).toBe(5);
  expect(await removeOldEvents(sql, behind!, 2)).toBeDefined();
  expect((await counts()).events).toBe(3);
  await clean(2);
  expect((await counts()).events).toBe(2);
});

test("a webhook whose next look was forgotten is found again", async () => {
  await hookOf();
  await emit(sql, organizationId, [1]);
  await number();
  await sql`UPDATE webhook_queues SET due_at = NULL`;
  await clean();
  const [row] = await sql`SELECT due_at FROM webhook_queues`;
  expect(row!.due_at).not.toBeNull();
});
