import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { findUnnumbered, findWebhookWork } from "../../db/queries/webhook-work.ts";
import { EVENT_TYPES } from "../../src/lib/event-types.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { addHook, addOnlyOrganization, emit, numberDeliveries } from "./many-hooks.ts";

let database: OpenTestDatabase;
let sql: Database;
let organizationId: string;
beforeAll(async () => {
  database = await openTestDatabase(6);
  ({ sql } = database);
});
afterAll(() => database.drop());
beforeEach(async () => {
  organizationId = await addOnlyOrganization(sql);
});

const hookOf = () => addHook(sql, organizationId);

const number = (hook: string, limit?: number) => numberDeliveries(sql, [hook], limit);

async function numbersOf(hook: string): Promise<[sequence: number, number: number][]> {
  const rows = await sql<{ sequence: bigint; number: number }[]>`
    SELECT d.sequence, (o.data->>'number')::int AS number FROM deliveries d JOIN outbox o ON o.id = d.outbox_id
    WHERE d.webhook_id = ${hook} ORDER BY d.sequence`;
  return rows.map((row) => [Number(row.sequence), row.number]);
}

/** An event in a transaction that is still open. */
async function emitOpen(
  value: number,
): Promise<{ commit(): Promise<unknown>; rollback(): Promise<unknown> }> {
  const { promise: end, resolve } = Promise.withResolvers<"commit" | "rollback">();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const running = sql
    .begin(async (transaction) => {
      await emit(transaction as unknown as Database, organizationId, [value]);
      begin();
      if ((await end) === "rollback") throw new Error("rolled back");
    })
    .catch(() => {});
  await begun;
  const finish = (how: "commit" | "rollback") => {
    resolve(how);
    return running;
  };
  return { commit: () => finish("commit"), rollback: () => finish("rollback") };
}

describe("numbers", () => {
  test("go to events in the order of their ids, once, without gaps, whatever order they come into sight in", async () => {
    const hook = await hookOf();
    await emit(sql, organizationId, [1, 2]);
    const late = await emitOpen(3);
    const lost = await emitOpen(4);
    const later = await emitOpen(5);
    await emit(sql, organizationId, [6]);
    expect(await number(hook)).toBe(3);
    await lost.rollback();
    await later.commit();
    await emit(sql, organizationId, [7]);
    expect(await number(hook)).toBe(2);
    await late.commit();
    expect(await number(hook)).toBe(1);
    expect(await number(hook)).toBe(0);
    expect(await numbersOf(hook)).toEqual([
      [1, 1],
      [2, 2],
      [3, 6],
      [4, 5],
      [5, 7],
      [6, 3],
    ]);
  });

  test("are given in bounded parts, and the parts miss nothing", async () => {
    const hook = await hookOf();
    const late = await emitOpen(0);
    await emit(sql, organizationId, [1, 2, 3, 4, 5]);
    expect([await number(hook, 2), await number(hook, 2)]).toEqual([2, 2]);
    await late.commit();
    await emit(sql, organizationId, [6]);
    expect([await number(hook, 2), await number(hook, 2), await number(hook, 2)]).toEqual([
      2, 1, 0,
    ]);
    expect((await numbersOf(hook)).map(([sequence]) => sequence)).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect((await numbersOf(hook)).map(([, value]) => value).sort()).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  test("go on in a database that was restored elsewhere, which counts transactions anew", async () => {
    const hook = await hookOf();
    await emit(sql, organizationId, [1]);
    await number(hook);
    await sql`UPDATE webhook_queues SET numbered = '900000000:900000000:'`;
    await emit(sql, organizationId, [2]);
    expect((await findUnnumbered(sql, EVENT_TYPES)).ids).toEqual([hook]);
    expect(await number(hook)).toBe(1);
    expect((await findUnnumbered(sql, EVENT_TYPES)).ids).toEqual([]);
    expect(await numbersOf(hook)).toEqual([
      [1, 1],
      [2, 2],
    ]);
  });
});

describe("one look", () => {
  const look = (since: string, remembered: readonly string[] = []) =>
    findWebhookWork(sql, { since, remembered, limit: 10 });
  const now = async () => (await findUnnumbered(sql, EVENT_TYPES)).snapshot;

  test("finds webhooks with new events, those that come into sight late among them, each once", async () => {
    const [hook, narrow] = [await hookOf(), await hookOf()];
    await sql`UPDATE webhooks SET events = '{cache.purged}' WHERE id = ${narrow}`;
    const since = await now();
    expect((await look(since)).unowned).toEqual([]);
    const late = await emitOpen(1);
    await emit(sql, organizationId, [2]);
    const first = await look(since);
    expect(first).toMatchObject({ unowned: [hook], fresh: [hook], owned: [] });
    const second = await look(first.snapshot);
    expect(second.unowned).toEqual([]);
    expect((await look(second.snapshot, [hook])).unowned).toEqual([hook]);
    await late.commit();
    expect((await look(second.snapshot)).unowned).toEqual([hook]);
  });

  test("finds what is due, and what a dead owner left, but nothing that somebody alive acts for", async () => {
    const [due, waiting, owned, left] = [
      await hookOf(),
      await hookOf(),
      await hookOf(),
      await hookOf(),
    ];
    await sql`INSERT INTO instances (id, epoch) VALUES ('ins_alive', 1)`;
    await sql`INSERT INTO actor_leases (kind, id, epoch, instance_id, instance_epoch) VALUES
      ('webhook', ${owned}, 1, 'ins_alive', 1), ('webhook', ${left}, 1, 'ins_dead', 1)`;
    await sql`UPDATE webhook_queues SET due_at = clock_timestamp() + CASE webhook_id
      WHEN ${waiting} THEN interval '1 hour' ELSE interval '-1 second' END WHERE webhook_id <> ${left}`;
    const found = await look(await now());
    expect([...found.unowned].sort()).toEqual([due, left].sort());
    await emit(sql, organizationId, [1]);
    const since = found.snapshot;
    expect((await look(since)).owned).toEqual([{ id: owned, instanceId: "ins_alive" }]);
  });
});
