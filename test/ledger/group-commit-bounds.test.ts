import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { GroupCommit, MAX_QUEUED_UNITS } from "../../db/ledger/group-commit.ts";
import { orgAccountId, type Settlement } from "../../db/ledger/rows.ts";
import { SubmittedUnit } from "../../db/ledger/units.ts";
import { refundEffect } from "../../src/billing/ledger/undelivered-charge-journal.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { type Books, openBooks, postedOf, settlement } from "./books.ts";
import { recordingLedger, traceEffect, tracesOf } from "./recording-ledger.ts";
import { lockAccount, untilWaiting } from "./standing-in-the-way.ts";

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

const settle = (one: Settlement) => ({ kind: "settle", settlement: one }) as const;
const statuses = async (all: Promise<unknown>[]) =>
  (await Promise.allSettled(all)).map(({ status }) => status);

describe("bounds", () => {
  const stuck = () =>
    new GroupCommit({
      sql: books.connect(),
      instance: books.instance,
      endEarlierTry: () => Promise.resolve(),
      onFenced() {},
      onGuardViolated() {},
    });

  test("beyond its bound the queue refuses with 503 and Retry-After at once, save what is owed for a delivered answer", async () => {
    const ledger = stuck();
    const payer = await books.addOrganization(1_000_000_000n);
    const release = await lockAccount(books.sql, orgAccountId(payer.organizationId));
    const first = ledger.submit([settle(settlement(payer))]);
    await untilWaiting(books.sql);
    const given = { isCancelled: false };
    const one = [settle(settlement(payer))];
    const waiting = Array.from({ length: MAX_QUEUED_UNITS }, () => ledger.submit(one, given));
    const refused = await ledger.submit(one).catch((error) => error as GatewayError);
    expect(refused).toBeInstanceOf(GatewayError);
    expect(refused).toMatchObject({ code: "overloaded", retryAfterSeconds: 1 });
    const owed = settlement(payer, { hasAttempt: true });
    const charged = ledger.submit([settle(owed)]);
    given.isCancelled = true;
    const outcomes = statuses(waiting);
    await release();
    await Promise.all([first, charged]);
    expect(new Set(await outcomes)).toEqual(new Set(["rejected"]));
    expect(await postedOf(books.sql, [owed.requestId])).toHaveLength(1);
    expect(ledger.queuedUnits).toBe(0);
  });

  test("what was charged for an answer that never left is refunded however much waits", async () => {
    const payer = await books.addOrganization(1_000_000_000n);
    const recording = recordingLedger(books.connect(), books.instance, (charged) => {
      refund = ledger.submit([refundEffect(charged)]);
    });
    const { ledger } = recording;
    let refund: Promise<void> | undefined;
    const release = await lockAccount(books.sql, orgAccountId(payer.organizationId));
    const patience = { isCancelled: false };
    const charged = ledger.submit([settle(settlement(payer))], patience);
    await untilWaiting(books.sql);
    // Its caller got an error while the commit was under way.
    patience.isCancelled = true;
    const given = { isCancelled: true };
    const one = [settle(settlement(payer))];
    const waiting = Array.from({ length: MAX_QUEUED_UNITS }, () => ledger.submit(one, given));
    const outcomes = statuses(waiting);
    await release();
    await Promise.all([charged, outcomes]);
    await refund!;
    const refunds = await books.sql`SELECT 1 FROM transactions
      WHERE type = 'refund' AND organization_id = ${payer.organizationId}`;
    expect(refunds).toHaveLength(1);
  });

  test("closing writes what is queued and what that brings with it, and takes nothing afterwards", async () => {
    const payer = await books.addOrganization(1_000_000n);
    const release = await lockAccount(books.sql, orgAccountId(payer.organizationId));
    const recording = recordingLedger(books.connect(), books.instance, () => {
      refund = ledger.submit([traceEffect("refund")]);
    });
    const { ledger } = recording;
    let refund: Promise<void> | undefined;
    const abandonment = { isCancelled: false };
    const given = ledger.submit([settle(settlement(payer))], abandonment);
    await untilWaiting(books.sql);
    const queued = settlement(payer);
    const last = ledger.submit([settle(queued)]);
    abandonment.isCancelled = true;
    const closed = ledger.close();
    await release();
    await closed;
    expect(await statuses([given, last, refund!])).toEqual(Array(3).fill("fulfilled"));
    expect(await postedOf(books.sql, [queued.requestId])).toHaveLength(1);
    expect(await tracesOf(books.sql)).toContain("refund");
    const late = ledger.submit([settle(settlement(payer))]);
    expect(late).rejects.toMatchObject({ code: "overloaded" });
    await ledger.close();
  });

  test("closing tries at once what rests because the database could not write it", async () => {
    const { ledger } = recordingLedger(books.connect(), books.instance);
    const payer = await books.addOrganization(1_000_000n);
    const owed = settlement(payer, { hasAttempt: true });
    const unit = new SubmittedUnit([settle(owed)], undefined);
    ledger.postAfterDelay(unit);
    await ledger.close();
    await unit.written;
    expect(await postedOf(books.sql, [owed.requestId])).toHaveLength(1);
    const late = new SubmittedUnit([settle(settlement(payer))], undefined);
    ledger.postAfterDelay(late);
    expect(late.written).rejects.toMatchObject({ code: "overloaded" });
  });

  test("closing ends although the database does not answer", async () => {
    const payer = await books.addOrganization(1_000_000n);
    const release = await lockAccount(books.sql, orgAccountId(payer.organizationId));
    const ledger = stuck();
    const one = settlement(payer);
    const submitted = ledger.submit([settle(one)]);
    await untilWaiting(books.sql);
    await ledger.close(20);
    expect(await postedOf(books.sql, [one.requestId])).toEqual([]);
    await release();
    await submitted;
  });
});
