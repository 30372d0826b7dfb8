import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { defineActor, type Turn, turnContextOf } from "../../actors/runtime/definition.ts";
import { ActorRegistry } from "../../actors/runtime/registry.ts";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import { orgAccountId, type Settlement } from "../../db/ledger/rows.ts";
import { FENCED } from "../../db/ledger/settle-batch.ts";
import { systemClock } from "../../src/lib/clock.ts";
import {
  attemptsOf,
  type Books,
  checkpointOf,
  faultsOf,
  openBooks,
  type Payer,
  postedOf,
  settlement,
} from "./books.ts";
import { recordingLedger, refusedEffect, traceEffect, tracesOf } from "./recording-ledger.ts";
import { lockAccount, untilWaiting } from "./standing-in-the-way.ts";

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

const openLedger = () => recordingLedger(books.connect(), books.instance);
const settle = (one: Settlement) => ({ kind: "settle", settlement: one }) as const;
const settlementsOf = (payer: Payer, count: number) =>
  Array.from({ length: count }, () => settlement(payer));
const statuses = async (all: Promise<unknown>[]) =>
  (await Promise.allSettled(all)).map(({ status }) => status);

describe("what queues during a commit", () => {
  test("goes into the next one together, in the order in which it came", async () => {
    const { ledger, batches, told } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const release = await lockAccount(books.sql, orgAccountId(payer.organizationId));
    const first = settlement(payer);
    const submitted = [ledger.submit([settle(first)])];
    await untilWaiting(books.sql);
    const rest = settlementsOf(payer, 20);
    for (const one of rest) submitted.push(ledger.submit([settle(one)]));
    expect(ledger.queuedUnits).toBe(20);
    await release();
    await Promise.all(submitted);
    expect(batches).toEqual([1, 20]);
    const ids = [first, ...rest].map(({ requestId }) => requestId);
    expect(told).toEqual(ids);
    expect(await postedOf(books.sql, ids)).toEqual(ids);
  });

  test("is told to be durable, with the new totals, before its submitters learn of it", async () => {
    const { ledger, told, totals } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const one = settlement(payer, { chargeNano: 30n });
    await ledger.submit([settle(one)]).then(() => expect(told).toEqual([one.requestId]));
    expect(totals.get(one.orgAccount)!.postedNano).toBe(30n);
    expect(totals.get(one.dayAccount)!.postedNano).toBe(30n);
  });

  test("of several checkpoints of a request leaves the last one, and none beside its settlement", async () => {
    const { ledger } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const running = settlement(payer, { hasAttempt: true });
    const ended = settlement(payer, { hasAttempt: true });
    const checkpoint = (of: Settlement, chargeNano: bigint) =>
      ledger.submit([{ kind: "checkpoint", checkpoint: checkpointOf(of, { chargeNano }) }]);
    await Promise.all([
      checkpoint(running, 1n),
      checkpoint(ended, 1n),
      checkpoint(running, 2n),
      ledger.submit([settle(ended)]),
    ]);
    const rows = await books.sql`SELECT request_id, charge_nano FROM attempts`;
    expect([...rows]).toEqual([{ request_id: running.requestId, charge_nano: 2n }]);
    await ledger.submit([settle(running)]);
    expect(await attemptsOf(books.sql)).toEqual([]);
  });
});

describe("a unit that the database refuses", () => {
  test("fails alone, wherever in a large batch it stands", async () => {
    const { ledger, told } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const all = settlementsOf(payer, 100);
    const overflow = { ...all[17]!, chargeNano: 2n ** 63n - 1n };
    const badText = { ...all[80]!, description: "a NUL: \u0000" };
    all[17] = overflow;
    all[80] = badText;
    const outcomes = await Promise.allSettled(all.map((one) => ledger.submit([settle(one)])));
    const failed = outcomes.flatMap(({ status }, i) => (status === "rejected" ? [i] : []));
    expect(failed).toEqual([17, 80]);
    expect((outcomes[17] as PromiseRejectedResult).reason).toMatchObject({ code: "22003" });
    const good = all.filter((_, i) => !failed.includes(i)).map(({ requestId }) => requestId);
    expect(
      await postedOf(
        books.sql,
        all.map(({ requestId }) => requestId),
      ),
    ).toEqual(good);
    expect(told.toSorted()).toEqual(good.toSorted());
    expect(await faultsOf(books.sql)).toEqual([]);
  });

  test("fails alone among statements, whose order stays", async () => {
    const { ledger } = openLedger();
    const names = ["one", "two", "three", "four"].map((name) => `alone-${name}`);
    const submitted = names.map((name) => ledger.submit([traceEffect(name)]));
    submitted.splice(2, 0, ledger.submit([refusedEffect("alone-bad")]));
    expect(await statuses(submitted)).toEqual([
      "fulfilled",
      "fulfilled",
      "rejected",
      "fulfilled",
      "fulfilled",
    ]);
    expect((await tracesOf(books.sql)).filter((name) => name.startsWith("alone-"))).toEqual(names);
  });

  test("takes everything with it that was to be written together", async () => {
    const { ledger } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const one = settlement(payer);
    const whole = ledger.submit([settle(one), traceEffect("together"), refusedEffect("bad")]);
    expect(await statuses([whole])).toEqual(["rejected"]);
    expect(await postedOf(books.sql, [one.requestId])).toEqual([]);
    expect(await tracesOf(books.sql)).not.toContain("together");
    await ledger.submit([settle(one), traceEffect("together")]);
    expect(await postedOf(books.sql, [one.requestId])).toHaveLength(1);
    expect(await tracesOf(books.sql)).toContain("together");
  });

  test("because its organization has no account fails, and does not vanish", async () => {
    const { ledger } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const nobody = { organizationId: "org_nobody", keyId: payer.keyId };
    const [lost, good] = [settlement(nobody), settlement(payer)];
    const submitted = [ledger.submit([settle(lost)]), ledger.submit([settle(good)])];
    expect(await statuses(submitted)).toEqual(["rejected", "fulfilled"]);
    expect(await faultsOf(books.sql)).toEqual([]);
  });

  test("because its request is posted already counts as done", async () => {
    const { ledger } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const [twice, other] = settlementsOf(payer, 2) as [Settlement, Settlement];
    await ledger.submit([settle(twice)]);
    await Promise.all([ledger.submit([settle(twice)]), ledger.submit([settle(other)])]);
    await Promise.all([ledger.submit([settle(twice)]), ledger.submit([settle(twice)])]);
    expect(await postedOf(books.sql, [twice.requestId, other.requestId])).toHaveLength(2);
    expect(await faultsOf(books.sql)).toEqual([]);
  });
});

describe("an instance that was declared dead", () => {
  test("writes nothing more and is told so", async () => {
    const instance = await books.addInstance();
    const { ledger, fenced, told } = recordingLedger(books.connect(), instance);
    const payer = await books.addOrganization(1_000_000n);
    await books.sql`UPDATE instances SET alive = false WHERE id = ${instance.id}`;
    const all = settlementsOf(payer, 5);
    const outcomes = await Promise.allSettled([
      ...all.map((one) => ledger.submit([settle(one)])),
      ledger.submit([traceEffect("fenced")]),
    ]);
    for (const outcome of outcomes) {
      expect((outcome as PromiseRejectedResult).reason).toMatchObject({ code: FENCED });
    }
    expect(fenced.times).toBeGreaterThanOrEqual(1);
    expect(told).toEqual([]);
    expect(
      await postedOf(
        books.sql,
        all.map(({ requestId }) => requestId),
      ),
    ).toEqual([]);
    expect(await tracesOf(books.sql)).not.toContain("fenced");
  });
});

describe("what its submitter gave up", () => {
  test("is not written where it still waited, and is where it was under way: then that is told", async () => {
    const { ledger, postedAbandoned, told } = openLedger();
    const payer = await books.addOrganization(1_000_000n);
    const release = await lockAccount(books.sql, orgAccountId(payer.organizationId));
    const [running, waiting, kept] = settlementsOf(payer, 3) as [
      Settlement,
      Settlement,
      Settlement,
    ];
    const abandonments = [{ isCancelled: false }, { isCancelled: false }];
    const first = ledger.submit([settle(running)], abandonments[0]);
    await untilWaiting(books.sql);
    const second = ledger.submit([settle(waiting)], abandonments[1]);
    const statement = { isCancelled: false };
    const third = ledger.submit([traceEffect("given up")], statement);
    const fourth = ledger.submit([settle(kept)]);
    for (const abandonment of [...abandonments, statement]) abandonment.isCancelled = true;
    const outcomes = statuses([first, second, third, fourth]);
    await release();
    expect(await outcomes).toEqual(["fulfilled", "rejected", "rejected", "fulfilled"]);
    expect(postedAbandoned).toEqual([running]);
    expect(told).toEqual([running.requestId, kept.requestId]);
    expect(await postedOf(books.sql, [waiting.requestId])).toEqual([]);
    expect(await tracesOf(books.sql)).not.toContain("given up");
  });
});

describe("actors on the ledger", () => {
  const numbered = (name: string): StatementEffect => traceEffect(`actor-${name}`);
  const actor = defineActor({
    kind: "tracer",
    permissions: { reads: [], writes: ["outbox"], events: [] },
    load: async (): Promise<readonly string[]> =>
      (await tracesOf(books.sql)).filter((name) => name.startsWith("actor-")),
    verbs: {
      add: (state: readonly string[], name: string): Turn<readonly string[], number> => ({
        state: [...state, `actor-${name}`],
        reply: state.length + 1,
        effects: [name === "bad" ? refusedEffect("bad") : numbered(`${name}-${state.length + 1}`)],
      }),
    },
  });

  test("turns whose commits queue behind a refused one are not written as they were, and come true afterwards", async () => {
    const { ledger } = openLedger();
    const registry = new ActorRegistry(actor, {
      clock: systemClock,
      context: turnContextOf(systemClock, () => 0),
      commit: (effects, commitChain) => ledger.submit(effects, commitChain),
      read: () => Promise.reject(new Error("reads nothing")),
    });
    const names = ["a", "bad", "b", "bad", "c", "d"];
    const outcomes = await Promise.allSettled(
      names.map((name) => registry.get("t").ask("add", name)),
    );
    expect(outcomes.map(({ status }) => status)).toEqual(
      names.map((name) => (name === "bad" ? "rejected" : "fulfilled")),
    );
    const written = (await tracesOf(books.sql)).filter((name) => name.startsWith("actor-"));
    // Each number was decided on what really stood before it.
    expect(written.map((name) => name.slice(-1))).toEqual(["1", "2", "3", "4"]);
    expect(written.map((name) => name.split("-")[1]).toSorted()).toEqual(["a", "b", "c", "d"]);
  });
});
