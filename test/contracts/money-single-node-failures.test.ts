import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import type { StatementEffect } from "../../db/ledger/effects.ts";
import { insertCreditCommand } from "../../db/queries/credit-commands.ts";
import { newId } from "../../src/lib/ids.ts";
import { faultsOf, type Payer, postedOf } from "../ledger/books.ts";
import { lockAccount, untilWaiting } from "../ledger/standing-in-the-way.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { until } from "../support/until.ts";
import { figures, requestOf } from "./money/owned-money.ts";
import { openSingleNodeMoney } from "./single-node-money.ts";

const MAX_SETTLE_WAIT_MS = 1_800;

type SingleNodeMoney = Awaited<ReturnType<typeof openSingleNodeMoney>>;

let proxy: CuttingProxy | undefined;
let owned: SingleNodeMoney;
beforeEach(async () => {
  owned = await openSingleNodeMoney({
    async ledgerUrl(databaseUrl) {
      proxy = await startCuttingProxy(databaseUrl);
      return proxy.url;
    },
    passivation: { maxActors: 2, idleMs: 60_000 },
  });
});
afterEach(async () => {
  await owned.close();
  await proxy?.stop();
});

async function transactionsOf({ organizationId }: Payer): Promise<[string, bigint][]> {
  const rows = await owned.sql<{ type: string; amount_nano: bigint }[]>`
    SELECT type, amount_nano FROM transactions WHERE organization_id = ${organizationId} AND sequence > 1
    ORDER BY sequence`;
  return rows.map(({ type, amount_nano }) => [type, amount_nano]);
}

const codeOf = (failing: Promise<unknown>) =>
  failing.then(
    () => undefined,
    (error) => (error as { code: string }).code,
  );

describe("an answer whose charge does not become durable in time", () => {
  test("fails with 503 and costs nothing: what was under way is posted and given back", async () => {
    const payer = await owned.addOrganization(1_000n);
    const held = await owned.money.hold(requestOf(payer, 1_000));
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const settling = codeOf(owned.money.settle(held, figures(700n)));
    await untilWaiting(owned.sql);
    owned.clock.advance(MAX_SETTLE_WAIT_MS - 1);
    expect(owned.money.outstandingHolds).toBe(1);
    owned.clock.advance(1);
    expect(await settling).toBe("database_unavailable");
    // Should this process die now, the next one gives it back.
    expect([...owned.notes]).toEqual([held.requestId]);
    // Its fate is open, so its money is not free.
    owned.money.release(held);
    expect(owned.money.outstandingHolds).toBe(1);
    await unlock();
    await until("it is given back", async () => {
      return (await transactionsOf(payer)).length === 2 && !owned.isBusy();
    });
    expect(await transactionsOf(payer)).toEqual([
      ["usage", -700n],
      ["refund", 700n],
    ]);
    expect(owned.money.outstandingHolds).toBe(0);
    expect([...owned.notes]).toEqual([]);
    owned.money.release(await owned.money.hold(requestOf(payer, 1_000)));
    expect(await faultsOf(owned.sql)).toEqual([]);
  });

  test("leaves no trace where it was not under way yet", async () => {
    const [first, second] = [
      await owned.addOrganization(1_000n),
      await owned.addOrganization(1_000n),
    ];
    const [stuck, waiting] = [
      await owned.money.hold(requestOf(first, 10)),
      await owned.money.hold(requestOf(second, 10)),
    ];
    const unlock = await lockAccount(owned.sql, `org:${first.organizationId}`);
    const settling = codeOf(owned.money.settle(stuck, figures(0n)));
    await untilWaiting(owned.sql);
    const queued = codeOf(owned.money.settle(waiting, figures(10n)));
    owned.clock.advance(MAX_SETTLE_WAIT_MS);
    expect(await settling).toBe("database_unavailable");
    expect(await queued).toBe("database_unavailable");
    await unlock();
    await until("both holds have ended", () => owned.money.outstandingHolds === 0);
    expect(await transactionsOf(second)).toEqual([]);
    // A charge of nothing needs no refund.
    expect(await transactionsOf(first)).toEqual([["usage", 0n]]);
    await until("nothing is noted any more", () => owned.notes.size === 0);
  });

  test("is not noted as owed where it is kept for a later call", async () => {
    const payer = await owned.addOrganization(1_000n);
    const held = await owned.money.hold(requestOf(payer, 10));
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const kept: StatementEffect = {
      ...{ kind: "statement", name: "keep", tables: [], events: [] },
      run: async () => {},
      storesAnswer: () => true,
    };
    const settling = codeOf(owned.money.settle(held, figures(10n), kept));
    await untilWaiting(owned.sql);
    owned.clock.advance(MAX_SETTLE_WAIT_MS);
    expect(await settling).toBe("database_unavailable");
    expect([...owned.notes]).toEqual([]);
    await unlock();
    await until("the hold has ended", () => owned.money.outstandingHolds === 0);
    expect(await transactionsOf(payer)).toEqual([["usage", -10n]]);
  });

  test("is charged all the same where something of it was delivered, however long that takes", async () => {
    const payer = await owned.addOrganization(1_000n);
    const held = await owned.money.hold(requestOf(payer, 100));
    await owned.money.checkpoint(held, figures(50n));
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const settling = owned.money.settle(held, figures(80n));
    await untilWaiting(owned.sql);
    owned.clock.advance(100 * MAX_SETTLE_WAIT_MS);
    await unlock();
    await settling;
    expect(await transactionsOf(payer)).toEqual([["usage", -80n]]);
  });

  test("costs nothing also where the connection broke behind its commit", async () => {
    const payer = await owned.addOrganization(1_000n);
    const held = await owned.money.hold(requestOf(payer, 100));
    const { cuts } = proxy!;
    proxy!.arm("lose its reply", held.requestId);
    const settling = codeOf(owned.money.settle(held, figures(80n)));
    await until("the connection is cut", () => proxy!.cuts > cuts);
    owned.clock.advance(MAX_SETTLE_WAIT_MS);
    expect(await settling).toBe("database_unavailable");
    await until("it is given back", async () => (await transactionsOf(payer)).length === 2);
    expect(await transactionsOf(payer)).toEqual([
      ["usage", -80n],
      ["refund", 80n],
    ]);
    expect(await postedOf(owned.sql, [held.requestId])).toHaveLength(1);
    expect(owned.money.outstandingHolds).toBe(0);
    expect(owned.backgroundErrors).toEqual([]);
  });
});

test("a hold of nothing ends well although its actors have left memory, and although they are just coming back", async () => {
  const payer = await owned.addOrganization(0n);
  const free = { perTokenFemto: 0n };
  const [settled, released] = [
    await owned.money.hold(requestOf(payer, 10, free)),
    await owned.money.hold(requestOf(payer, 10, free)),
  ];
  for (let i = 0; i < 3; i++) {
    const other = await owned.addOrganization(10n);
    owned.money.release(await owned.money.hold(requestOf(other, 10)));
  }
  expect(owned.keys.peek(payer.keyId)).toBeUndefined();
  expect(owned.organizations.peek(payer.organizationId)).toBeUndefined();
  await owned.money.settle(settled, figures(0n));
  const loading = [
    owned.keys.get(payer.keyId).activate(),
    owned.organizations.get(payer.organizationId).activate(),
  ];
  owned.money.release(released);
  await Promise.all(loading);
  expect(owned.money.outstandingHolds).toBe(0);
  expect(await postedOf(owned.sql, [settled.requestId])).toHaveLength(1);
});

describe("an operator's orders", () => {
  async function order(payer: Payer, amountNano: bigint): Promise<string> {
    const id = newId("cmd");
    await owned.sql.begin((transaction) =>
      insertCreditCommand(transaction, {
        kind: "adjustment",
        id,
        organizationId: payer.organizationId,
        amountNano,
        description: "Correction",
      }),
    );
    return id;
  }

  test("are carried out also where they come while another is carried out", async () => {
    const payer = await owned.addOrganization(1_000n);
    await order(payer, 5n);
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const first = owned.orders.carryOut();
    await untilWaiting(owned.sql);
    await order(payer, 7n);
    const second = owned.orders.carryOut();
    await unlock();
    await Promise.all([first, second]);
    expect(await transactionsOf(payer)).toEqual([
      ["adjustment", 5n],
      ["adjustment", 7n],
    ]);
  });

  test("that fail keep nothing set aside", async () => {
    const payer = await owned.addOrganization(1_000n);
    await order(payer, -400n);
    const organization = owned.organizations.get(payer.organizationId);
    await organization.activate();
    await owned.sql`UPDATE instances SET alive = false`;
    await owned.orders.carryOut();
    expect(owned.backgroundErrors.length).toBeGreaterThan(0);
    expect(await organization.ask("headroom", undefined)).toMatchObject({ availableNano: 1_000n });
    expect(await transactionsOf(payer)).toEqual([]);
  });
});
