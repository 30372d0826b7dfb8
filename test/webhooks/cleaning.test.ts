import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { cleanDeliveries } from "../../db/queries/delivery-clean.ts";
import { EVENT_TYPES } from "../../src/lib/event-types.ts";
import { cleanWebhooks } from "../../src/services/webhooks/delivery-cleaning.ts";
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
const clean = (limit?: number) => cleanDeliveries(sql, EVENT_TYPES, limit);

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

test("one run removes no more than its limit, and says that there is more", async () => {
  await emit(sql, organizationId, [1, 2, 3, 4, 5]);
  await age(8);
  expect((await clean(2)).isMore).toBeTrue();
  expect((await counts()).events).toBe(3);
  expect((await clean(10)).isMore).toBeFalse();
  expect((await counts()).events).toBe(0);
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
