import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { EarlyHoldRefused } from "../../src/services/money/early-refusal.ts";
import type { Hold, HoldRequest } from "../../src/services/money/interface.ts";
import { figures, requestOf } from "../contracts/money/owned-money.ts";
import { openSeveralMoney, shareMoney } from "../contracts/several-money.ts";
import { until } from "../support/until.ts";
import { attemptsOf, faultsOf, holdsOf, type Payer, postedOf } from "./books.ts";
import { scriptedStream } from "./scripted-stream.ts";
import { lockAccount, untilWaiting } from "./standing-in-the-way.ts";

let owned: Awaited<ReturnType<typeof openSeveralMoney>>;
let other: ReturnType<typeof shareMoney>;
beforeAll(async () => {
  owned = await openSeveralMoney();
  const instance = await owned.books.addInstance();
  other = shareMoney(owned.books, { clock: owned.clock, instance });
});
afterAll(async () => {
  await other.ledger.close();
  await owned.close();
});

const early = { mayBeginEarly: true };

/** A payer whose accounts this instance has just seen. */
async function knownPayer(creditNano = 10_000n): Promise<Payer> {
  const payer = await owned.addOrganization(creditNano);
  owned.money.release(await owned.money.hold(requestOf(payer, 1)));
  await idle();
  return payer;
}

async function idle(): Promise<void> {
  await until("nothing is written", () => !owned.isBusy());
}

function begin(payer: Payer, tokens: number, over: Partial<HoldRequest> = {}): Hold {
  const held = owned.money.hold(requestOf(payer, tokens, { ...early, ...over }));
  if (held instanceof Promise) throw new Error("did not begin early");
  return held;
}

/** The other instance spends it all, unseen by this one. */
async function spendElsewhere(payer: Payer, tokens: number): Promise<void> {
  const held = await other.money.hold(requestOf(payer, tokens));
  await other.money.settle(held, figures(BigInt(tokens)));
}

const refusalOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error) => error as unknown,
  );

async function expectWhole(): Promise<void> {
  await until("nothing is held", async () => (await holdsOf(owned.sql)).length === 0);
  expect(owned.money.outstandingHolds).toBe(0);
  expect(await attemptsOf(owned.sql)).toEqual([]);
  expect(await faultsOf(owned.sql)).toEqual([]);
}

describe("a request begins before its hold is durable", () => {
  test("only while what is known to be free is four times as much, and known of late", async () => {
    const payer = await knownPayer();
    const isEarly = async (tokens: number): Promise<boolean> => {
      const held = owned.money.hold(requestOf(payer, tokens, early));
      const was = !(held instanceof Promise);
      owned.money.release(await held);
      await idle();
      return was;
    };
    expect(await isEarly(2_500)).toBe(true);
    expect(await isEarly(2_501)).toBe(false);
    // What began early and is not decided yet is not free either.
    const first = begin(payer, 2_000);
    const second = owned.money.hold(requestOf(payer, 501, early));
    expect(second).toBeInstanceOf(Promise);
    for (const held of [first, await second]) owned.money.release(held);
    owned.clock.advance(2_001);
    expect(await isEarly(1)).toBe(false);
    expect(await isEarly(1)).toBe(true);
    expect(await isEarly(2_500)).toBe(true);
    const unwilling = owned.money.hold(requestOf(payer, 1));
    expect(unwilling).toBeInstanceOf(Promise);
    owned.money.release(await unwilling);
    await expectWhole();
  });

  test("and where it ends at once, its hold and its charge are one commit", async () => {
    const payer = await knownPayer();
    const batches = owned.batches.length;
    const hold = begin(payer, 100);
    await owned.money.settle(hold, figures(70n));
    expect(owned.batches.length - batches).toBe(1);
    expect(await holdsOf(owned.sql)).toEqual([]);
    expect(await postedOf(owned.sql, [hold.requestId])).toHaveLength(1);
    expect(await owned.money.settle(hold, figures(70n))).toBeUndefined();
    await expectWhole();
  });

  test("and its first checkpoint rides with its hold", async () => {
    const payer = await knownPayer();
    const batches = owned.batches.length;
    const hold = begin(payer, 100);
    await owned.money.checkpoint(hold, figures(7n));
    expect(owned.batches.length - batches).toBe(1);
    expect(await holdsOf(owned.sql)).toEqual([hold.requestId]);
    expect(await attemptsOf(owned.sql)).toEqual([hold.requestId]);
    await owned.money.settle(hold, figures(9n));
    await expectWhole();
  });

  test("and ends well whether its hold is queued, being decided, or durable by then", async () => {
    const payer = await knownPayer(1_000_000n);
    const ends: Promise<unknown>[] = [];
    for (let i = 0; i < 120; i++) {
      const hold = begin(payer, 100);
      const wait = async () => {
        for (let turn = 0; turn < i % 12; turn++) await Bun.sleep(0);
      };
      const end = async () => {
        await wait();
        if (i % 3 === 0) return owned.money.release(hold);
        if (i % 3 === 1) await owned.money.checkpoint(hold, figures(10n));
        await owned.money.settle(hold, figures(50n));
      };
      ends.push(end());
      if (i % 5 === 0) await Bun.sleep(0);
    }
    await Promise.all(ends);
    await expectWhole();
    const [row] = await owned.sql`SELECT count(*)::int AS posted FROM transactions
      WHERE organization_id = ${payer.organizationId} AND type = 'usage'`;
    expect(row!.posted).toBe(80);
  });
});

describe("where its money is gone meanwhile", () => {
  test("neither its charge nor its checkpoint is written, and what it began is told", async () => {
    const payer = await knownPayer();
    await spendElsewhere(payer, 10_000);
    const holds = [begin(payer, 100), begin(payer, 100), begin(payer, 100)];
    const refusals = await Promise.all([
      refusalOf(owned.money.settle(holds[0]!, figures(50n))),
      refusalOf(owned.money.checkpoint(holds[1]!, figures(50n))),
      refusalOf(holds[2]!.confirmed!),
    ]);
    for (const refusal of refusals) expect(refusal).toBeInstanceOf(EarlyHoldRefused);
    for (const hold of holds) owned.money.release(hold);
    expect(
      await postedOf(
        owned.sql,
        holds.map(({ requestId }) => requestId),
      ),
    ).toEqual([]);
    // It is not tried again before something else is known.
    const again = owned.money.hold(requestOf(payer, 100, early));
    expect(await refusalOf(Promise.resolve(again))).toMatchObject({
      code: "insufficient_credits",
    });
    await expectWhole();
  });

  test("its key counts no more than its money", async () => {
    const payer = await knownPayer();
    await owned.sql`UPDATE api_keys SET is_active = false WHERE id = ${payer.keyId}`;
    const hold = begin(payer, 100);
    expect(await refusalOf(owned.money.settle(hold, figures(1n)))).toMatchObject({
      code: "key_inactive",
    });
    await expectWhole();
  });

  test("a stream lets nothing out, and its provider is stopped", async () => {
    const payer = await knownPayer();
    await spendElsewhere(payer, 10_000);
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const scripted = scriptedStream(owned, begin(payer, 1_000));
    const opening = refusalOf(scripted.stream.open());
    await until("the provider is called", () => scripted.provider.calls.length === 1);
    await untilWaiting(owned.sql);
    expect(scripted.provider.calls).toEqual([{ isAborted: false }]);
    await unlock();
    expect(await opening).toBeInstanceOf(EarlyHoldRefused);
    expect(scripted.provider.calls).toEqual([{ isAborted: true }]);
    await expectWhole();
  });

  test("a stream that has said all it has to say lets nothing out either", async () => {
    const payer = await knownPayer();
    await spendElsewhere(payer, 10_000);
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const scripted = scriptedStream(owned, begin(payer, 1_000));
    const opening = refusalOf(scripted.stream.open());
    await until("the provider is called", () => scripted.provider.calls.length === 1);
    scripted.provider.say("a", "b");
    scripted.provider.finish();
    await untilWaiting(owned.sql);
    await unlock();
    expect(await opening).toBeInstanceOf(EarlyHoldRefused);
    await expectWhole();
  });
});

test("a stream lets nothing out before its hold is durable", async () => {
  const payer = await knownPayer();
  const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
  const scripted = scriptedStream(owned, begin(payer, 1_000));
  let isOpen = false;
  const opening = scripted.stream.open().then(() => {
    isOpen = true;
  });
  await until("the provider is called", () => scripted.provider.calls.length === 1);
  scripted.provider.say("a", "b");
  scripted.provider.finish();
  await untilWaiting(owned.sql);
  expect(isOpen).toBe(false);
  await unlock();
  await opening;
  await new Response(scripted.stream.body()).text();
  await expectWhole();
});
