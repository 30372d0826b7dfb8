import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Query } from "../../db/client.ts";
import {
  insertSubjectBudget,
  TooManySubjectBudgetsError,
} from "../../db/queries/subject-budgets.ts";
import { BudgetSubjects } from "../../src/billing/ledger/budget-subjects.ts";
import { newId } from "../../src/lib/ids.ts";
import { type Books, openBooks } from "../ledger/books.ts";

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

/** What requests ask, with the names of the reads that it took. */
function subjects() {
  const reads: string[] = [];
  const read = <Result>(query: Query<Result>) => {
    reads.push(query.name);
    return query.run(books.sql);
  };
  return { reads, known: new BudgetSubjects(read) };
}

async function budgetOf(
  organizationId: string,
  type: "user" | "tag",
  value: string,
  maxBudgets?: number,
) {
  const id = newId("bud");
  const budget = { id, subject: { type, value }, dailyBudgetNano: 1n, monthlyBudgetNano: null };
  const made = { ...budget, createdAtMs: Date.now() };
  await insertSubjectBudget(books.sql, organizationId, made, maxBudgets);
  return { budgetId: id, type, value };
}

test("requests of an organization without budgets read once that it has none", async () => {
  const { organizationId } = await books.addOrganization(1n);
  const { reads, known } = subjects();
  expect(await known.of(organizationId, { user: "ada" })).toBeUndefined();
  // At once: nothing is waited for any more.
  expect(known.of(organizationId, { user: "bob", metadata: { tags: ["a", "b"] } })).toBeUndefined();
  expect(reads).toEqual(["subject-budget-types"]);
  expect(known.of("another", { metadata: { other: "a" } })).toBeUndefined();
});

test("each subject is looked for once, with a budget or without, until there is a change", async () => {
  const { organizationId } = await books.addOrganization(1n);
  const ada = await budgetOf(organizationId, "user", "ada");
  const { reads, known } = subjects();
  const ask = { user: "ada", metadata: { tags: "team a, team b" } };
  expect(await known.of(organizationId, ask)).toEqual([ada]);
  expect(known.of(organizationId, ask)).toEqual([ada]);
  expect(await known.of(organizationId, { user: "bob" })).toBeUndefined();
  expect(known.of(organizationId, { user: "bob" })).toBeUndefined();
  // No tag has a budget, so none is looked for.
  expect(known.of(organizationId, { metadata: { tags: ["team c"] } })).toBeUndefined();
  expect(reads).toEqual(["subject-budget-types", "subject-budget-ids", "subject-budget-ids"]);
  const [bob, team] = [
    await budgetOf(organizationId, "user", "bob"),
    await budgetOf(organizationId, "tag", "team b"),
  ];
  known.forget(organizationId);
  expect(await known.of(organizationId, { ...ask, user: "bob" })).toEqual([bob, team]);
  expect(await known.of(organizationId, ask)).toEqual([ada, team]);
});

test("of budgets that are made at once no more are there than may be", async () => {
  const { organizationId } = await books.addOrganization(1n);
  const made = await Promise.allSettled(
    Array.from({ length: 9 }, (_, at) => budgetOf(organizationId, "user", `user ${at}`, 5)),
  );
  const refused = made.filter((one) => one.status === "rejected");
  expect(refused).toHaveLength(4);
  for (const { reason } of refused) expect(reason).toBeInstanceOf(TooManySubjectBudgetsError);
});
