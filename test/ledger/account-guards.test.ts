import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { orgAccountId } from "../../db/ledger/rows.ts";
import { type Books, faultsOf, openBooks, postedOf, settlement } from "./books.ts";
import { recordingLedger } from "./recording-ledger.ts";

/* The database itself keeps every balance within its credit, for every statement of the program. */
let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

const stateOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error) => (error as { code?: string }).code,
  );

test("a charge beyond the balance is refused alone and reported, and the rest of its batch is written", async () => {
  const { ledger, violations, batches } = recordingLedger(books.connect(), books.instance);
  const rich = await books.addOrganization(1_000_000n);
  const poor = await books.addOrganization(500n);
  const good = Array.from({ length: 6 }, () => settlement(rich));
  const beyond = settlement(poor, { chargeNano: 501n });
  const all = [...good.slice(0, 3), beyond, ...good.slice(3)].map((one) =>
    ledger.submit([{ kind: "settle", settlement: one }]),
  );
  const outcomes = await Promise.all(all.map(stateOf));
  expect(outcomes).toEqual([undefined, undefined, undefined, "23514", ...Array(3).fill(undefined)]);
  expect(violations).toEqual([beyond.requestId]);
  const posted = await postedOf(
    books.sql,
    good.map(({ requestId }) => requestId),
  );
  expect(posted).toHaveLength(6);
  await ledger.submit([{ kind: "settle", settlement: settlement(poor, { chargeNano: 500n }) }]);
  expect(batches[0]).toBe(7);
  expect(await faultsOf(books.sql)).toEqual([]);
});

describe("no statement", () => {
  test.each([
    ["spends beyond the balance", "posted_nano = 1001"],
    ["holds beyond the balance", "held_nano = 1001"],
    ["spends what is held", "posted_nano = 500, held_nano = 501"],
    ["takes credit that is used", "posted_nano = 1000, credit_nano = 999"],
    ["spends less than nothing", "posted_nano = -1"],
    ["holds less than nothing", "held_nano = -1"],
    ["gives a credit limit below zero", "credit_limit_nano = -1"],
    ["lowers a credit limit that is used", "posted_nano = 1010, credit_limit_nano = 9"],
  ])("%s", async (_, change) => {
    const { organizationId } = await books.addOrganization(1_000n);
    const id = orgAccountId(organizationId);
    const changing = books.sql.unsafe(`UPDATE accounts SET ${change} WHERE id = '${id}'`);
    expect(await stateOf(changing)).toBe("23514");
  });

  test("is refused that stays within credit and credit limit, or has none", async () => {
    const { organizationId } = await books.addOrganization(1_000n);
    const id = orgAccountId(organizationId);
    for (const change of [
      "posted_nano = 400, held_nano = 600",
      "posted_nano = 1000, held_nano = 10, credit_limit_nano = 10",
      "credit_limit_nano = NULL, posted_nano = 5000, held_nano = 9000",
    ]) {
      await books.sql.unsafe(`UPDATE accounts SET ${change} WHERE id = '${id}'`);
    }
  });
});
