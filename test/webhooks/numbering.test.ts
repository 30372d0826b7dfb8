import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { connectDatabase, type Database } from "../../db/client.ts";
import { deliveryBacklog } from "../../db/queries/outbox.ts";
import { findDueAmong, findDueWebhooks } from "../../db/queries/webhooks.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import {
  addHook,
  addOnlyOrganization,
  addOrganization,
  emit,
  numberAll,
  numberTurn,
} from "./many-hooks.ts";

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

const hookOf = (organization = organizationId) => addHook(sql, organization);

/** Numbers of a webhook's events in the order in which they go out. */
async function eventsOf(hook: string): Promise<number[]> {
  const rows = await sql<{ sequence: bigint; number: number }[]>`
    SELECT d.sequence, (o.data->>'number')::int AS number FROM deliveries d JOIN outbox o ON o.id = d.outbox_id
    WHERE d.webhook_id = ${hook} ORDER BY d.sequence`;
  expect(new Set(rows.map(({ sequence }) => sequence)).size).toBe(rows.length);
  return rows.map((row) => row.number);
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

const range = (first: number, last: number) =>
  Array.from({ length: last - first + 1 }, (_, i) => first + i);

describe("numbers", () => {
  test("go to events in the order of their ids, once, whatever order they come into sight in", async () => {
    const hook = await hookOf();
    await emit(sql, organizationId, [1, 2]);
    const late = await emitOpen(3);
    const lost = await emitOpen(4);
    const later = await emitOpen(5);
    await emit(sql, organizationId, [6]);
    expect(await numberAll(sql)).toBe(3);
    await lost.rollback();
    await later.commit();
    await emit(sql, organizationId, [7]);
    expect(await numberAll(sql)).toBe(2);
    await late.commit();
    expect(await numberAll(sql)).toBe(1);
    expect(await numberAll(sql)).toBe(0);
    expect(await eventsOf(hook)).toEqual([1, 2, 6, 5, 7, 3]);
  });

  test("are given in turns of bounded size, and the turns miss nothing", async () => {
    const hooks = [await hookOf(), await hookOf(), await hookOf()];
    await emit(sql, organizationId, range(1, 20));
    for (let isMore = true; isMore; ) {
      const before = await sql`SELECT 1 FROM deliveries`;
      const turn = await numberTurn(sql, 7);
      const after = await sql`SELECT 1 FROM deliveries`;
      expect(after.length - before.length).toBe(turn.numbered);
      expect(turn.numbered).toBeLessThanOrEqual(7);
      isMore = turn.isMore;
    }
    for (const hook of hooks) expect(await eventsOf(hook)).toEqual(range(1, 20));
    expect(await sql`SELECT 1 FROM unnumbered_events`).toHaveLength(0);
  });

  test("of an event go to more webhooks than fit into one turn, and nothing overtakes it meanwhile", async () => {
    const hooks = await Promise.all(Array.from({ length: 7 }, () => hookOf()));
    const late = await emitOpen(1);
    await emit(sql, organizationId, [2, 3]);
    expect(await numberTurn(sql, 3)).toMatchObject({ numbered: 3, isMore: true });
    // It has a lower id than the event that some have got and others not.
    await late.commit();
    const added = await hookOf();
    for (let isMore = true; isMore; ) {
      const turn = await numberTurn(sql, 3);
      expect(turn.numbered).toBeLessThanOrEqual(3);
      isMore = turn.isMore;
    }
    for (const hook of hooks) expect(await eventsOf(hook)).toEqual([2, 1, 3]);
    expect(await eventsOf(added)).toEqual([]);
  });

  test("of an event that some have got are given on when its webhooks change in number meanwhile", async () => {
    const hooks = (await Promise.all(Array.from({ length: 5 }, () => hookOf()))).sort();
    await emit(sql, organizationId, [1, 2]);
    await numberTurn(sql, 2);
    await sql`DELETE FROM webhooks WHERE id = ANY (${sql.array(hooks.slice(1, 4))}::text[])`;
    // With a larger share than there are webhooks.
    await numberAll(sql);
    for (const hook of [hooks[0]!, hooks[4]!]) expect(await eventsOf(hook)).toEqual([1, 2]);
  });

  test("of organizations take turns: one with a thousand events holds none of the others up", async () => {
    const hook = await hookOf();
    await emit(sql, organizationId, range(1, 1_000));
    const others: string[] = [];
    for (let i = 0; i < 4; i++) {
      const other = await addOrganization(sql);
      others.push(await hookOf(other));
      await emit(sql, other, [1, 2]);
    }
    await numberTurn(sql, 50);
    for (const other of others) expect(await eventsOf(other)).toEqual([1, 2]);
    expect(await eventsOf(hook)).toEqual(range(1, 10));
  });

  test("go round all organizations, also where there are more than one turn serves", async () => {
    const hooks: string[] = [];
    for (let i = 0; i < 70; i++) {
      const other = await addOrganization(sql);
      hooks.push(await hookOf(other));
      await emit(sql, other, [i]);
    }
    const first = await numberTurn(sql);
    expect(first).toMatchObject({ numbered: 64, last: expect.any(String) });
    expect(await numberTurn(sql, 2_048, first.last)).toMatchObject({
      numbered: 6,
      last: undefined,
    });
    for (const [i, hook] of hooks.entries()) expect(await eventsOf(hook)).toEqual([i]);
  });

  test("are given once where several instances number at the same time", async () => {
    const hooks = [await hookOf(), await hookOf()];
    await emit(sql, organizationId, range(1, 300));
    const late = await emitOpen(0);
    const numbering = Promise.all(range(1, 4).map(() => numberAll(sql, 20)));
    await Bun.sleep(20);
    await late.commit();
    await numbering;
    await numberAll(sql);
    for (const hook of hooks) {
      const events = await eventsOf(hook);
      expect(events.filter((event) => event > 0)).toEqual(range(1, 300));
      expect(events).toHaveLength(301);
    }
  });

  test("are given by nobody who was declared dead", async () => {
    const hook = await hookOf();
    await emit(sql, organizationId, [1]);
    await numberTurn(sql);
    await emit(sql, organizationId, [2]);
    await sql`UPDATE instances SET alive = false WHERE id = 'ins_numberer'`;
    expect(await numberTurn(sql)).toMatchObject({ numbered: 0, isMore: false });
    expect(await eventsOf(hook)).toEqual([1]);
    await sql`UPDATE instances SET alive = true WHERE id = 'ins_numberer'`;
    await numberAll(sql);
    expect(await eventsOf(hook)).toEqual([1, 2]);
  });

  test("go on in a database that was restored elsewhere, which counts transactions anew", async () => {
    const hook = await hookOf();
    await emit(sql, organizationId, [1]);
    await numberAll(sql);
    await sql`UPDATE webhook_queues SET numbered = '900000000:900000000:'`;
    await emit(sql, organizationId, [2]);
    expect(await numberAll(sql)).toBe(1);
    expect(await eventsOf(hook)).toEqual([1, 2]);
  });

  test("go to no event from before the webhook, nor of a type that it did not have yet", async () => {
    await hookOf();
    await emit(sql, organizationId, [1]);
    const hook = await hookOf();
    const narrow = await hookOf();
    await sql`UPDATE webhooks SET events = '{cache.purged}' WHERE id = ${narrow}`;
    await emit(sql, organizationId, [2]);
    await numberAll(sql);
    await sql`UPDATE webhooks SET events = '{*}' WHERE id = ${narrow}`;
    await emit(sql, organizationId, [3]);
    await numberAll(sql);
    expect(await eventsOf(hook)).toEqual([2, 3]);
    expect(await eventsOf(narrow)).toEqual([3]);
  });

  test("of an organization without webhooks are not kept", async () => {
    await emit(sql, organizationId, range(1, 50));
    await numberAll(sql, 16);
    expect(await sql`SELECT 1 FROM unnumbered_events`).toHaveLength(0);
  });

  test("make a webhook due that comes to rest in the same moment", async () => {
    const hook = await hookOf();
    await sql`UPDATE webhook_queues SET due_at = clock_timestamp()`;
    await emit(sql, organizationId, [1]);
    // A rest that began before the deliveries were in sight, and is not committed yet.
    const { promise: mayCommit, resolve: commit } = Promise.withResolvers<void>();
    const { promise: rested, resolve: hasRested } = Promise.withResolvers<void>();
    const rest = sql.begin(async (transaction) => {
      await transaction`UPDATE webhook_queues SET due_at = webhook_due_at(webhook_id) WHERE webhook_id = ${hook}`;
      hasRested();
      await mayCommit;
    });
    await rested;
    const numbering = numberTurn(sql);
    await Bun.sleep(100);
    commit();
    await Promise.all([rest, numbering]);
    const [queue] = await sql`SELECT due_at FROM webhook_queues`;
    expect(queue!.due_at).not.toBeNull();
  });
});

describe("one look", () => {
  const look = (after = "", limit = 100, maxOrganizations = 10) =>
    findDueWebhooks(sql, { after, limit, maxOrganizations });
  const idsOf = (found: { readonly webhooks: readonly { readonly id: string }[] }) =>
    found.webhooks.map(({ id }) => id).sort();

  test("finds what is due, and what a dead owner left, but nothing that somebody alive acts for", async () => {
    const hooks = [await hookOf(), await hookOf(), await hookOf(), await hookOf(), await hookOf()];
    const [due, waiting, owned, left, idle] = hooks as [string, string, string, string, string];
    await sql`INSERT INTO instances (id, epoch) VALUES ('ins_alive', 1)`;
    await sql`INSERT INTO actor_leases (kind, id, epoch, instance_id, instance_epoch) VALUES
      ('webhook', ${owned}, 1, 'ins_alive', 1), ('webhook', ${left}, 1, 'ins_dead', 1)`;
    await sql`UPDATE webhook_queues SET due_at = clock_timestamp() + CASE webhook_id
      WHEN ${waiting} THEN interval '1 hour' ELSE interval '-1 second' END WHERE webhook_id <> ${idle}`;
    expect(idsOf(await look())).toEqual([due, left].sort());
    const among = await findDueAmong(sql, hooks);
    const told = among.map(({ id, owner }) => [id, owner]);
    const expected = [
      [due, null],
      [owned, "ins_alive"],
      [left, null],
    ];
    expect(told.sort()).toEqual(expected.sort());
  });

  test("is shared out among organizations, and goes round them", async () => {
    for (let i = 0; i < 5; i++) await hookOf();
    const others: string[] = [];
    for (let i = 0; i < 3; i++) others.push(await hookOf(await addOrganization(sql)));
    await sql`UPDATE webhook_queues SET due_at = clock_timestamp() - interval '1 second'`;
    const all = await look("", 8);
    expect(all.webhooks).toHaveLength(2 + 3);
    for (const other of others) expect(idsOf(all)).toContain(other);
    const first = await look("", 100, 3);
    const second = await look(first.last, 100, 3);
    expect([first.last === undefined, second.last]).toEqual([false, undefined]);
    expect(first.webhooks.length + second.webhooks.length).toBe(8);
  });
});

test("the ages of what is not numbered and not delivered are measured", async () => {
  expect(await deliveryBacklog(sql)).toEqual({
    oldestUnnumberedSeconds: 0,
    oldestUndeliveredSeconds: 0,
  });
  await hookOf();
  await emit(sql, organizationId, [1]);
  await sql`UPDATE outbox SET created_at = created_at - interval '100 seconds'`;
  const before = await deliveryBacklog(sql);
  expect(before.oldestUnnumberedSeconds).toBeWithin(100, 110);
  expect(before.oldestUndeliveredSeconds).toBe(0);
  await numberAll(sql);
  const after = await deliveryBacklog(sql);
  expect(after.oldestUnnumberedSeconds).toBe(0);
  expect(after.oldestUndeliveredSeconds).toBeWithin(100, 110);
});

test("a statement on webhooks that takes too long is ended by the server", async () => {
  const { WEBHOOK_SETTINGS } = await import("../../src/main/compose/base.ts");
  expect(Number(WEBHOOK_SETTINGS.statement_timeout)).toBeWithin(1_000, 10_001);
  const limited = connectDatabase(database, {
    poolSize: 1,
    applicationName: "limited",
    settings: { ...WEBHOOK_SETTINGS, statement_timeout: "100" },
  });
  await hookOf();
  await emit(sql, organizationId, [1]);
  await numberTurn(sql, 16, "zzz");
  const { promise: isOver, resolve: over } = Promise.withResolvers<void>();
  const locking = sql.begin(async (transaction) => {
    await transaction`SELECT 1 FROM webhook_queues FOR UPDATE`;
    await isOver;
  });
  await Bun.sleep(50);
  await expect(numberTurn(limited)).rejects.toMatchObject({ code: "57014" });
  over();
  await locking;
  await limited.end({ timeout: 1 });
  expect(await numberAll(sql)).toBe(1);
});
