import { afterAll, beforeAll, expect, test } from "bun:test";
import { dayAccountId, monthAccountId } from "../../db/ledger/rows.ts";
import { deleteKeyEffect, updateKeyEffect } from "../../db/queries/api-keys.ts";
import { newId } from "../../src/lib/ids.ts";
import { type Books, DAY, MONTH, openBooks, type Payer } from "./books.ts";

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

const eventOf = ({ keyId, organizationId }: Payer, type: "key.updated" | "key.deleted") => ({
  eventId: newId("evt"),
  organizationId,
  type,
  data: { key_id: keyId },
});

test("a change that meets a key which another instance has deleted tells nothing behind the deletion", async () => {
  const { organizationId } = await books.addOrganization(1_000_000_000n);
  const payer = await books.addKey(organizationId, {});
  const { keyId } = payer;
  const accounts = [dayAccountId(keyId, DAY), monthAccountId(keyId, MONTH)];
  const change = updateKeyEffect(
    keyId,
    { dailyBudgetNano: 0n },
    accounts,
    eventOf(payer, "key.updated"),
  );
  const deletion = deleteKeyEffect(keyId, eventOf(payer, "key.deleted"));
  await books.sql.begin((transaction) => deletion.run(transaction));
  await books.sql.begin((transaction) => change.run(transaction));

  const events = await books.sql<{ type: string }[]>`
    SELECT type FROM outbox WHERE data->>'key_id' = ${keyId} ORDER BY id`;
  expect(events.map(({ type }) => type)).toEqual(["key.deleted"]);
  const [row] = await books.sql`SELECT daily_budget_nano FROM api_keys WHERE id = ${keyId}`;
  expect(row!.daily_budget_nano).toBeNull();
});
