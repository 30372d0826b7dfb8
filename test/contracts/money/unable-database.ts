import { describe, expect, test } from "bun:test";
import { attemptsOf, postedOf } from "../../ledger/books.ts";
import { until } from "../../support/until.ts";
import { refuseRows } from "../../support/unwilling-table.ts";
import { figures, type MoneyHands, requestOf } from "./owned-money.ts";

/** insufficient_resources: disk_full. */
const DISK_FULL = "53100";
const ENOUGH_MS = 2_000;

/** The database lives, and refuses to write for a while. */
export function describeUnableDatabase(hands: MoneyHands): void {
  const stateOf = (failing: Promise<unknown>) =>
    failing.then(
      () => undefined,
      (error) => (error as { code: string }).code,
    );
  const chargeOf = async (requestId: string) => {
    const [row] = await hands.owned
      .sql`SELECT charge_nano FROM attempts WHERE request_id = ${requestId}`;
    return row?.charge_nano;
  };

  describe("while the database refuses to write", () => {
    test("what was delivered stays owed and held, and is charged once it does write", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 600));
      await hands.money.checkpoint(held, figures(200n));
      const transactions = await refuseRows(hands.owned.sql, "transactions", DISK_FULL);
      const settling = hands.money.settle(held, figures(250n));
      await until("it is refused", async () => (await transactions.refusals()) > 0);
      hands.money.release(held);
      expect(await hands.isWaiting(settling)).toBe(true);
      await hands.advance(ENOUGH_MS);
      await until("it is refused again", async () => (await transactions.refusals()) > 1);
      await transactions.relent();
      await hands.passing(settling);
      expect(await postedOf(hands.owned.sql, [held.requestId])).toHaveLength(1);
      expect(await hands.balanceOf(payer)).toBe(750n);
      await hands.expectWhole();
    });

    test("an answer of which nothing was delivered fails at once and costs nothing", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 1_000));
      const transactions = await refuseRows(hands.owned.sql, "transactions", DISK_FULL);
      expect(await stateOf(hands.money.settle(held, figures(250n)))).toBe(DISK_FULL);
      await transactions.relent();
      await hands.expectWhole();
      hands.money.release(await hands.hold(requestOf(payer, 1_000)));
      await hands.expectWhole();
    });

    test("a stream's first checkpoint fails, and a later one is written once it does write", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 600));
      const early = await refuseRows(hands.owned.sql, "attempts", DISK_FULL);
      expect(await stateOf(hands.money.checkpoint(held, figures(100n)))).toBe(DISK_FULL);
      await early.relent();
      await hands.money.checkpoint(held, figures(100n));
      const late = await refuseRows(hands.owned.sql, "attempts", DISK_FULL);
      const checkpointing = hands.money.checkpoint(held, figures(200n));
      await until("it is refused", async () => (await late.refusals()) > 0);
      expect(await hands.isWaiting(checkpointing)).toBe(true);
      await late.relent();
      await hands.passing(checkpointing);
      expect(await chargeOf(held.requestId)).toBe(200n);
      await hands.money.settle(held, figures(200n));
      await hands.expectWhole();
    });

    test("a checkpoint that waits for it is given up where the stream ends", async () => {
      const payer = await hands.payerOf(1_000n);
      const held = await hands.hold(requestOf(payer, 600));
      await hands.money.checkpoint(held, figures(100n));
      const attempts = await refuseRows(hands.owned.sql, "attempts", DISK_FULL);
      const checkpointing = stateOf(hands.money.checkpoint(held, figures(200n)));
      await until("it is refused", async () => (await attempts.refusals()) > 0);
      await hands.money.settle(held, figures(250n));
      await attempts.relent();
      expect(await hands.passing(checkpointing)).toBe(DISK_FULL);
      expect(await attemptsOf(hands.owned.sql)).toEqual([]);
      await hands.expectWhole();
    });
  });
}
