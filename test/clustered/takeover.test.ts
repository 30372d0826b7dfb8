import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import type { Database } from "../../db/client.ts";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

/** O2: ownership moves within the lease time plus a second. */
const TAKEOVER_MS = INSTANCE_LEASE_MS + 1_000;
/** A loaded machine. */
const TOLERANCE_MS = 1_500;
const TIMEOUT_MS = 60_000;
const CHORES = 12;

let database: OpenTestDatabase;
let sql: Database;
const children: Owner[] = [];
beforeAll(async () => {
  database = await openTestDatabase(2);
  ({ sql } = database);
  await sql`CREATE TABLE chores (id text PRIMARY KEY)`;
  await sql`CREATE TABLE chores_done (id text, instance text, epoch bigint,
    at timestamptz DEFAULT clock_timestamp())`;
  await sql`INSERT INTO chores SELECT 'chore-' || n FROM generate_series(1, ${CHORES}) n`;
});
beforeEach(async () => {
  await sql`TRUNCATE chores_done`;
});
afterEach(async () => {
  for (const { child } of children.splice(0)) {
    child.kill("SIGKILL");
    await child.exited;
  }
});
afterAll(() => database.drop());

interface Owner {
  readonly name: string;
  readonly child: Bun.Subprocess<"ignore", "pipe", "inherit">;
  /** How often it has said that it is inside a transaction. */
  timesInside(): number;
}

async function startOwner(): Promise<Owner> {
  const name = crypto.randomUUID().slice(0, 8);
  const script = join(import.meta.dir, "owner.ts");
  const child = Bun.spawn([process.execPath, script, database.url, name], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let said = "";
  void (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of child.stdout) said += decoder.decode(bytes);
  })();
  const owner = { name, child, timesInside: () => said.split("inside").length - 1 };
  children.push(owner);
  await until("the owner works", () => said.includes("working"), 20_000);
  return owner;
}

async function workersOf(): Promise<Map<string, string>> {
  const rows = await sql<{ id: string; instance: string }[]>`
    SELECT DISTINCT ON (id) id, instance FROM chores_done ORDER BY id, at DESC`;
  return new Map(rows.map(({ id, instance }) => [id, instance]));
}

const untilDoneBy = (what: string, owners: readonly Owner[]) =>
  until(
    what,
    async () => {
      const names = owners.map(({ name }) => name);
      const done = [...(await workersOf()).values()].filter((name) => names.includes(name));
      const isShared = names.every((name) => done.includes(name));
      return done.length === CHORES && isShared;
    },
    20_000,
  );

/** For each actor, how long nobody did its work between the last of the one and the first of the others. */
async function gapsMs(lost: Owner): Promise<number[]> {
  const rows = await sql<{ gap_ms: string }[]>`
    SELECT extract(epoch FROM min(at) FILTER (WHERE instance <> ${lost.name})
      - max(at) FILTER (WHERE instance = ${lost.name})) * 1000 AS gap_ms
    FROM chores_done GROUP BY id HAVING bool_or(instance = ${lost.name})`;
  return rows.map(({ gap_ms }) => Math.round(Number(gap_ms)));
}

/** Nothing is written under an epoch once a higher one has been at work. */
async function writesOfFormerOwners(): Promise<Record<string, unknown>[]> {
  return sql`SELECT a.* FROM chores_done a JOIN chores_done b
    ON a.id = b.id AND a.epoch < b.epoch AND a.at > b.at`;
}

test(
  "what a killed instance owned is at work elsewhere within the lease time plus a second",
  async () => {
    const first = await startOwner();
    await untilDoneBy("the only one does everything", [first]);
    const [second, third] = [await startOwner(), await startOwner()];
    // Longer than a lease after its start an instance may judge others.
    await Bun.sleep(INSTANCE_LEASE_MS + 500);
    first.child.kill("SIGKILL");
    await first.child.exited;
    await sql`DELETE FROM chores_done WHERE instance <> ${first.name}`;
    await untilDoneBy("the others do everything", [second, third]);
    const gaps = await gapsMs(first);
    console.log(`taken over after a kill within ${Math.max(...gaps)} ms`);
    expect(gaps).toHaveLength(CHORES);
    expect(Math.max(...gaps)).toBeLessThan(TAKEOVER_MS + TOLERANCE_MS);
    expect(await writesOfFormerOwners()).toEqual([]);
    // A stop in order hands over at once.
    second.child.kill("SIGTERM");
    expect(await second.child.exited).toBe(0);
    await untilDoneBy("the last one does everything", [third]);
    expect(Math.max(...(await gapsMs(second)))).toBeLessThan(TAKEOVER_MS);
    expect(await writesOfFormerOwners()).toEqual([]);
    third.child.kill("SIGTERM");
    expect(await third.child.exited).toBe(0);
  },
  TIMEOUT_MS,
);

test(
  "an instance paused past its lease in the middle of a transaction writes nothing when it wakes",
  async () => {
    const paused = await startOwner();
    await untilDoneBy("it does everything", [paused]);
    const heir = await startOwner();
    await Bun.sleep(INSTANCE_LEASE_MS + 500);
    const before = paused.timesInside();
    await until("a transaction is under way", () => paused.timesInside() > before);
    paused.child.kill("SIGSTOP");
    const [open] = await sql`SELECT count(*)::int AS transactions FROM pg_stat_activity
      WHERE datname = current_database() AND state = 'idle in transaction'`;
    expect(open!.transactions).toBeGreaterThan(0);
    const written =
      await sql`SELECT count(*)::int AS n FROM chores_done WHERE instance = ${paused.name}`;
    await untilDoneBy("the other one does everything", [heir]);
    const gaps = await gapsMs(paused);
    console.log(`taken over after a pause within ${Math.max(...gaps)} ms`);
    expect(Math.max(...gaps)).toBeLessThan(TAKEOVER_MS + TOLERANCE_MS);
    const [row] = await sql`SELECT alive FROM instances WHERE id = ${`ins_${paused.name}`}`;
    expect(row!.alive).toBeFalse();
    paused.child.kill("SIGCONT");
    // It finds itself declared dead, and ends.
    expect(await paused.child.exited).toBe(1);
    const after =
      await sql`SELECT count(*)::int AS n FROM chores_done WHERE instance = ${paused.name}`;
    expect(after[0]!.n).toBe(written[0]!.n);
    expect(await writesOfFormerOwners()).toEqual([]);
  },
  TIMEOUT_MS,
);
