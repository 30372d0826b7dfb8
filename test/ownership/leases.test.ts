import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  guardLease,
  type Lease,
  LeaseLostError,
  PostgresOwnership,
} from "../../actors/runtime/ownership.ts";
import { type Database, sqlState } from "../../db/client.ts";
import { removeSpentLeases } from "../../db/queries/actor-leases.ts";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { createOrganization } from "../../db/queries/organizations.ts";
import { prepareOrganization } from "../../src/accounts/organizations/organizations.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { addOwner, age, type TestOwner } from "./instances.ts";

let database: OpenTestDatabase;
let sql: Database;
beforeAll(async () => {
  database = await openTestDatabase(6);
  ({ sql } = database);
});
afterAll(() => database.drop());

async function addOrganization(sql: Database): Promise<string> {
  const { organization } = prepareOrganization(
    { name: "Owner", plan: "free", startingCreditNano: 0n },
    Date.now(),
  );
  await sql.begin((transaction) => createOrganization(transaction, organization));
  return organization.id;
}

const PAST_LEASE_MS = INSTANCE_LEASE_MS + 100;
const newIds = (count: number) => Array.from({ length: count }, () => crypto.randomUUID());
const newName = () => newIds(1)[0]!;
const summary = (leases: readonly Lease[]) => leases.map(({ id, epoch }) => ({ id, epoch }));

const guardOf = (owner: TestOwner, lease: Lease) =>
  sql
    .begin((transaction) => guardLease(transaction, lease, owner.instance))
    .then(
      () => "may write",
      (error) => {
        expect(error).toBeInstanceOf(LeaseLostError);
        return "lost";
      },
    );

/** Declares an instance dead in a transaction that stays open until `end`. */
async function beginBurial({ instance }: TestOwner) {
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const burial = sql.begin(async (transaction) => {
    await transaction`SELECT 1 FROM instances WHERE id = ${instance.id} FOR UPDATE`;
    await transaction`UPDATE instances SET alive = false WHERE id = ${instance.id}`;
    begin();
    await mayEnd;
  });
  await begun;
  return {
    blocksSomeone: () =>
      until("a statement waits for it", async () => {
        const [row] = await sql`SELECT count(*)::int AS waiting FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`;
        return row!.waiting > 0;
      }),
    async end() {
      end();
      await burial;
    },
  };
}

describe("a lease", () => {
  test("belongs to one of many instances that claim at once, and to the one that was told so", async () => {
    const owners = await Promise.all(Array.from({ length: 6 }, () => addOwner(sql)));
    const ids = newIds(60);
    const claims = await Promise.all(
      owners.map(async (owner, n) => {
        const order = n % 2 === 0 ? ids : ids.toReversed();
        return { owner, leases: await owner.ownership.claim("webhook", order) };
      }),
    );
    const claimed = claims.flatMap(({ leases }) => leases.map(({ id }) => id));
    expect(new Set(claimed).size).toBe(claimed.length);
    for (const { owner, leases } of claims) {
      for (const lease of leases) {
        expect(owner.ownership.isHeld(lease)).toBeTrue();
        expect(await guardOf(owner, lease)).toBe("may write");
      }
    }
    // Those that were passed over, because another claim had them locked, are found by the next look.
    const again = await Promise.all(owners.map(({ ownership }) => ownership.claim("webhook", ids)));
    const held = again.flatMap((leases) => leases.map(({ id }) => id));
    expect(held.sort()).toEqual(ids.sort());
  });

  test("is its holder's as long as the instance is heard of, and one heartbeat renews them all", async () => {
    const [owner, other] = [await addOwner(sql), await addOwner(sql)];
    const ids = newIds(2_500);
    const leases = await owner.ownership.claim("job", ids);
    expect(leases).toHaveLength(2_500);
    await age(sql, owner, INSTANCE_LEASE_MS / 2);
    expect(await other.ownership.claim("job", ids)).toEqual([]);
    // One more heartbeat, and nothing for each of them.
    await age(sql, owner, 0);
    expect(await other.ownership.claim("job", ids)).toEqual([]);
    const again = await owner.ownership.claim("job", ids);
    expect(new Set(again)).toEqual(new Set(leases));
    expect(await guardOf(owner, leases[2_000]!)).toBe("may write");
  });

  test("goes once it has no owner and its batch, job or file nothing left to do", async () => {
    const [owner, other] = [await addOwner(sql), await addOwner(sql)];
    const organization = await addOrganization(sql);
    const [due, ended, held] = newIds(3) as [string, string, string];
    for (const id of [due, ended, held]) {
      await sql`INSERT INTO batches (id, organization_id, key_id, endpoint, input_file, status, created_at,
          expires_at, due_at)
        VALUES (${id}, ${organization}, 'key', '/v1/embeddings', 'file', 'in_progress', now(), now(),
          ${id === due ? sql`now()` : null})`;
    }
    const gone = newName();
    const claim = async (kind: string, ids: readonly string[]) =>
      await owner.ownership.claim(kind, ids);
    const free = [
      ...(await claim("batch", [due, ended])),
      ...(await claim("fine-tuning-job", [gone])),
      ...(await claim("vector-store-file", [gone])),
      ...(await claim("webhook", [gone])),
    ];
    await other.ownership.claim("batch", [held]);
    await owner.ownership.release(free);
    expect(await removeSpentLeases(sql)).toBeFalse();
    const left = await sql`SELECT kind, id FROM actor_leases
      WHERE id = ANY (${sql.array([due, ended, held, gone])}::text[])`;
    const names = left.map(({ kind, id }) => `${kind} ${id}`).toSorted();
    expect(names).toEqual([`batch ${due}`, `batch ${held}`, `webhook ${gone}`].toSorted());
  });

  test("passes on, with a higher epoch, once its instance was not heard of within its lease", async () => {
    const [owner, other] = [await addOwner(sql), await addOwner(sql)];
    const id = newName();
    const [lease] = await owner.ownership.claim("webhook", [id]);
    await age(sql, owner, PAST_LEASE_MS);
    // An instance that has just got its database back cannot tell an outage from a death.
    other.judges = false;
    expect(await other.ownership.claim("webhook", [id])).toEqual([]);
    other.judges = true;
    const [taken] = await other.ownership.claim("webhook", [id]);
    expect(summary([lease!, taken!])).toEqual([
      { id, epoch: 1n },
      { id, epoch: 2n },
    ]);
    // The first one comes back to life: its instance was not declared dead, but its lease is gone.
    await age(sql, owner, 0);
    expect(await guardOf(owner, lease!)).toBe("lost");
    expect(await guardOf(other, taken!)).toBe("may write");
    expect(owner.lost).toEqual([]);
    await owner.ownership.verify();
    expect(owner.lost).toEqual([`webhook ${id} 1`]);
    expect(owner.ownership.isHeld(lease!)).toBeFalse();
    expect(other.ownership.isHeld(taken!)).toBeTrue();
  });

  test("passes on at once where its instance was declared dead, has left, or is another life of it", async () => {
    const other = await addOwner(sql);
    for (const end of [
      ({ instance }: TestOwner) =>
        sql`UPDATE instances SET alive = false WHERE id = ${instance.id}`,
      ({ instance }: TestOwner) => sql`DELETE FROM instances WHERE id = ${instance.id}`,
      ({ instance }: TestOwner) =>
        sql`UPDATE instances SET epoch = epoch + 1 WHERE id = ${instance.id}`,
    ]) {
      const owner = await addOwner(sql);
      const [lease] = await owner.ownership.claim("webhook", [newName()]);
      await end(owner);
      expect(await guardOf(owner, lease!)).toBe("lost");
      expect(await owner.ownership.claim("webhook", [newName()])).toEqual([]);
      expect(summary(await other.ownership.claim("webhook", [lease!.id]))).toEqual([
        { id: lease!.id, epoch: 2n },
      ]);
    }
  });

  test("that was given back is free, and its epoch does not repeat", async () => {
    const [owner, other] = [await addOwner(sql), await addOwner(sql)];
    const id = newName();
    const [first] = await owner.ownership.claim("webhook", [id]);
    await owner.ownership.release([first!]);
    expect(owner.ownership.isHeld(first!)).toBeFalse();
    expect(await guardOf(owner, first!)).toBe("lost");
    const [second] = await other.ownership.claim("webhook", [id]);
    // Late, and twice: it gives back nothing that is another's.
    await owner.ownership.release([first!]);
    expect(await guardOf(other, second!)).toBe("may write");
    await other.ownership.releaseAll();
    expect(summary(await owner.ownership.claim("webhook", [id]))).toEqual([{ id, epoch: 3n }]);
    expect(owner.lost).toEqual([]);
  });

  test("is not held while its instance may be past its own", async () => {
    const owner = await addOwner(sql);
    const [lease] = await owner.ownership.claim("webhook", [newName()]);
    owner.withinLease = false;
    expect(owner.ownership.isHeld(lease!)).toBeFalse();
    expect(await owner.ownership.claim("webhook", [lease!.id])).toEqual([]);
    owner.withinLease = true;
    expect(owner.ownership.isHeld(lease!)).toBeTrue();
  });
});

describe("the guard", () => {
  test("keeps the actor with its owner until the transaction ends, and lets nobody wait for it", async () => {
    const [owner, other] = [await addOwner(sql), await addOwner(sql)];
    const [lease] = await owner.ownership.claim("webhook", [newName()]);
    const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    const writing = sql.begin(async (transaction) => {
      await guardLease(transaction, lease!, owner.instance);
      begin();
      await mayEnd;
    });
    await begun;
    // A heartbeat does not wait for what its own instance writes.
    await age(sql, owner, PAST_LEASE_MS);
    expect(await other.ownership.claim("webhook", [lease!.id])).toEqual([]);
    end();
    await writing;
    expect(await other.ownership.claim("webhook", [lease!.id])).toHaveLength(1);
  });

  test("of an instance that is being declared dead waits, and then refuses", async () => {
    const owner = await addOwner(sql);
    const [lease] = await owner.ownership.claim("webhook", [newName()]);
    const burial = await beginBurial(owner);
    const guard = guardOf(owner, lease!);
    await burial.blocksSomeone();
    await burial.end();
    expect(await guard).toBe("lost");
  });

  test("is not given back by an instance that is being declared dead", async () => {
    const owner = await addOwner(sql);
    const [lease] = await owner.ownership.claim("webhook", [newName()]);
    const burial = await beginBurial(owner);
    const release = owner.ownership.release([lease!]);
    await burial.blocksSomeone();
    await burial.end();
    await release;
    const [row] = await sql`SELECT instance_id FROM actor_leases WHERE id = ${lease!.id}`;
    expect(row!.instance_id).toBe(owner.instance.id);
  });

  test("told of by its owner, a lost lease is told to all who listen, once", async () => {
    const owner = await addOwner(sql);
    const [lease] = await owner.ownership.claim("webhook", [newName()]);
    owner.ownership.noteLost(lease!);
    owner.ownership.noteLost(lease!);
    expect(owner.lost).toEqual([`webhook ${lease!.id} 1`]);
  });
});

test("what a claim won without its answer arriving is given back by the next look at the table", async () => {
  const owner = await addOwner(sql);
  const held = await owner.ownership.claim("webhook", newIds(3));
  const unheard = new PostgresOwnership({
    sql,
    instance: owner.instance,
    instanceLease: { isCurrent: true, mayJudgeOthers: true },
  });
  const [orphan] = await unheard.claim("webhook", [newName()]);
  await owner.ownership.verify();
  expect(owner.lost).toEqual([]);
  for (const lease of held) expect(owner.ownership.isHeld(lease)).toBeTrue();
  const other = await addOwner(sql);
  expect(await other.ownership.claim("webhook", [orphan!.id])).toHaveLength(1);
});

test("the lease time is the same to the database as to the gateway", async () => {
  const [row] = await sql`SELECT extract(epoch FROM instance_lease()) * 1000 AS lease_ms`;
  expect(Number(row!.lease_ms)).toBe(INSTANCE_LEASE_MS);
});

test("the refusal of the guard is a definite one, for whatever commits around it", async () => {
  const owner = await addOwner(sql);
  const lost = sql.begin((transaction) =>
    guardLease(transaction, { kind: "webhook", id: newName(), epoch: 1n }, owner.instance),
  );
  expect(sqlState(await lost.catch((error) => error))).toBe("GW002");
});
