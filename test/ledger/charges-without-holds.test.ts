import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { exchangeLedgerBatch } from "../../db/ledger/exchange-batch.ts";
import { settleDead } from "../../db/ledger/settle-dead.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { newId } from "../../src/lib/ids.ts";
import { figures, requestOf } from "../contracts/money/owned-money.ts";
import { attemptsOf, checkpointOf, holdsOf, type Payer, postedOf, settlement } from "./books.ts";
import { openSharedGrounds, type Shared, type SharedGrounds } from "./shared-grounds.ts";

/*
 * A charge needs a hold behind it: without one it takes money that other requests were given.
 */
let grounds: SharedGrounds;
beforeAll(async () => {
  grounds = await openSharedGrounds();
});
afterAll(() => grounds.close());

const CHARGE = 5_000n;

/** A stream of the instance as a batch writes it: its hold, and its first checkpoint. */
function openingOf(payer: Payer) {
  const request = settlement(payer, { requestId: newId("req"), chargeNano: CHARGE });
  const hold = { ...request, fullNano: CHARGE, leastNano: CHARGE, mostNano: CHARGE } as const;
  return { request, checkpoint: checkpointOf(request, { holdNano: CHARGE }), hold };
}

async function balanceOf({ organizationId }: Payer): Promise<bigint> {
  const [row] = await grounds.books.sql<{ nano: bigint }[]>`SELECT credit_nano - posted_nano AS nano
    FROM accounts WHERE id = ${`org:${organizationId}`}`;
  return row!.nano;
}

async function spendAll(of: Shared, payer: Payer, nano: bigint): Promise<void> {
  const held = await of.money.hold(requestOf(payer, Number(nano)));
  await of.money.settle(held, figures(nano));
}

describe("an attempt whose hold has ended", () => {
  test("does not stay behind where a second try of its batch refuses the hold", async () => {
    const [dying, other] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.books.addOrganization(CHARGE);
    const { hold, checkpoint, request } = openingOf(payer);
    const batch = {
      checkpoints: [checkpoint],
      settlements: [],
      releases: [],
      holds: [{ ...hold, manner: "waiting" as const }],
      knownAccounts: new Set<string>(),
    };
    const write = (recheck: boolean) =>
      exchangeLedgerBatch(grounds.books.sql, dying.instance, { ...batch, recheck });
    await write(false);
    // The answer of that commit is lost, and the key is switched off before the second try.
    await grounds.books.sql`UPDATE api_keys SET is_active = false WHERE id = ${payer.keyId}`;
    const { verdicts } = await write(true);
    expect(verdicts.get(request.requestId)).toEqual({ kind: "revoked", isActive: false });
    expect(await holdsOf(grounds.books.sql)).toEqual([]);
    await grounds.books.sql`UPDATE api_keys SET is_active = true WHERE id = ${payer.keyId}`;
    await spendAll(other, payer, CHARGE);
    await grounds.bury(dying);
    await settleDead(grounds.books.sql, other.instance);
    expect(await balanceOf(payer)).toBe(0n);
    expect(await postedOf(grounds.books.sql, [request.requestId])).toEqual([]);
    await grounds.expectWhole(other);
  });

  test("of a dead instance is not charged, and is removed", async () => {
    const [dead, other] = [await grounds.open(), await grounds.open()];
    const payer = await grounds.books.addOrganization(CHARGE);
    const { request, checkpoint } = openingOf(payer);
    await dead.ledger.submit([{ kind: "checkpoint", checkpoint }]);
    await spendAll(other, payer, CHARGE);
    await grounds.bury(dead);
    const settled = await settleDead(grounds.books.sql, other.instance);
    expect(settled).toMatchObject({ settled: 0, failures: [] });
    expect(await postedOf(grounds.books.sql, [request.requestId])).toEqual([]);
    expect(await attemptsOf(grounds.books.sql)).toEqual([]);
    expect(await balanceOf(payer)).toBe(0n);
  });

  test("of a gateway that held in its memory is charged, at most its hold", async () => {
    const other = await grounds.open();
    const lone = { id: newId("ins"), epoch: 1n };
    await insertInstance(grounds.books.sql, lone, true);
    const payer = await grounds.books.addOrganization(CHARGE);
    const { request, checkpoint } = openingOf(payer);
    await exchangeLedgerBatch(grounds.books.sql, lone, {
      checkpoints: [checkpoint],
      settlements: [],
      releases: [],
      holds: [],
      knownAccounts: new Set(),
      recheck: false,
    });
    await grounds.bury({ instance: lone });
    const settled = await settleDead(grounds.books.sql, other.instance);
    expect(settled).toMatchObject({ settled: 1, failures: [] });
    expect(await postedOf(grounds.books.sql, [request.requestId])).toHaveLength(1);
    await grounds.expectWhole(other);
  });
});

test("settling what is not held, or was settled before, throws", async () => {
  const shared = await grounds.open();
  const payer = await grounds.books.addOrganization(CHARGE);
  const held = await shared.money.hold(requestOf(payer, 100));
  await shared.money.settle(held, figures(1n));
  await expect(shared.money.settle(held, figures(1n))).rejects.toThrow("no hold for");
  const released = await shared.money.hold(requestOf(payer, 100));
  shared.money.release(released);
  await expect(shared.money.settle(released, figures(1n))).rejects.toThrow("no hold for");
  await grounds.expectWhole(shared);
});
