import { afterAll, beforeAll, expect, test } from "bun:test";
import { type Lease, type Peers, UnownedWork } from "../../actors/runtime/ownership.ts";
import type { Database } from "../../db/client.ts";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { addOwner, age, type TestOwner } from "./instances.ts";

const HOUR_MS = 3_600_000;

let database: OpenTestDatabase;
let sql: Database;
beforeAll(async () => {
  database = await openTestDatabase(4);
  ({ sql } = database);
  await sql`CREATE TABLE chores (kind text, id text, PRIMARY KEY (kind, id))`;
});
afterAll(() => database.drop());

interface Worker {
  readonly owner: TestOwner;
  readonly work: UnownedWork;
  readonly started: Lease[];
}

/** An instance that takes over chores of one kind; `peers` may be changed on the way. */
async function addWorker(kind: string, peers: Peers, clock = new VirtualClock()): Promise<Worker> {
  const owner = await addOwner(sql);
  const started: Lease[] = [];
  const work = new UnownedWork({
    ownership: owner.ownership,
    clock,
    membership: { peers: () => peers },
    onError: (error) => {
      throw error;
    },
  });
  work.register({
    kind,
    start: (lease) => void started.push(lease),
    async findWork(limit) {
      const rows = await sql<{ id: string }[]>`SELECT id FROM chores c WHERE kind = ${kind}
        AND NOT EXISTS (SELECT 1 FROM owned_actors o WHERE o.kind = c.kind AND o.id = c.id)
        ORDER BY id LIMIT ${limit}`;
      return rows.map(({ id }) => id);
    },
  });
  return { owner, work, started };
}

/** A single instance that stays alive although it sends no heartbeats: a sweep may outlast a lease. */
async function addLastingWorker(kind: string): Promise<Worker> {
  const worker = await addWorker(kind, { count: 1, rank: 0 });
  await age(sql, worker.owner, -HOUR_MS);
  return worker;
}

async function addChores(kind: string, count: number): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`INSERT INTO chores
    SELECT ${kind}, gen_random_uuid()::text FROM generate_series(1, ${count}) RETURNING id`;
  return rows.map(({ id }) => id).sort();
}

const idsOf = (...workers: Worker[]) =>
  workers.flatMap(({ started }) => started.map(({ id }) => id)).sort();

test("instances share what nobody does, each thing once, in one look of each", async () => {
  const workers = await Promise.all(
    [0, 1, 2].map((rank) => addWorker("shared", { count: 3, rank })),
  );
  const chores = await addChores("shared", 300);
  for (const { work } of workers) await work.sweep();
  expect(idsOf(...workers)).toEqual(chores);
  for (const { started } of workers) expect(started.length).toBeGreaterThan(50);
});

test("ten thousand actors of a dead instance are taken over in one look", async () => {
  const dead = await addLastingWorker("many");
  const chores = await addChores("many", 10_000);
  await dead.work.sweep();
  expect(dead.started).toHaveLength(10_000);
  const heir = await addLastingWorker("many");
  await heir.work.sweep();
  expect(heir.started).toEqual([]);
  await age(sql, dead.owner, INSTANCE_LEASE_MS + 100);
  await heir.work.sweep();
  expect(idsOf(heir)).toEqual(chores);
}, 60_000);

test("what its turn left with an instance that is no more is taken by another a look later", async () => {
  const clock = new VirtualClock();
  const worker = await addWorker("left", { count: 2, rank: 0 }, clock);
  const chores = await addChores("left", 40);
  await worker.work.sweep();
  const first = worker.started.length;
  expect(first).toBeGreaterThan(0);
  expect(first).toBeLessThan(40);
  // Looks that follow one another at once take nothing from the others' share.
  await worker.work.sweep();
  expect(worker.started).toHaveLength(first);
  clock.advance(1_000);
  await worker.work.sweep();
  expect(idsOf(worker)).toEqual(chores);
});

test("it looks once a second, and stops", async () => {
  const clock = new VirtualClock();
  const worker = await addWorker("steady", { count: 1, rank: 0 }, clock);
  worker.work.start();
  await worker.work.sweep();
  await addChores("steady", 2);
  clock.advance(1_000);
  await until("the work is found", () => worker.started.length === 2);
  await worker.work.stop();
  await addChores("steady", 2);
  clock.advance(5_000);
  await worker.work.sweep();
  expect(worker.started).toHaveLength(2);
});
