import { afterEach, beforeEach, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { searchCatalogue } from "../../db/queries/catalogue-search.ts";
import { publishSearch } from "../../src/inference/models/model-catalogue.ts";
import type { CatalogueModel } from "../../src/lib/catalogue-model.ts";
import { createModelIndex } from "../../src/providers/catalogue/model-index.ts";
import { sandboxModels } from "../../src/providers/catalogue/sandbox-models.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";

let database: OpenTestDatabase;
let sql: Database;
beforeEach(async () => {
  database = await openTestDatabase(8);
  ({ sql } = database);
});
afterEach(async () => {
  await database.drop();
});

const publish = (models: readonly CatalogueModel[]) =>
  publishSearch(sql, createModelIndex({ models }));

/** Ids, and a mark of the row version that changes with each write. */
async function rows(): Promise<Map<string, string>> {
  const found = await sql<{ model_id: string; version: string }[]>`
    SELECT model_id, xmin::text || ctid::text AS version FROM catalogue_search ORDER BY model_id`;
  return new Map(found.map((row) => [row.model_id, row.version]));
}

const idsOf = (models: readonly CatalogueModel[]) => models.map(({ id }) => id).sort();

test("a start with the same catalogue writes nothing", async () => {
  await publish(sandboxModels());
  const before = await rows();
  expect([...before.keys()].sort()).toEqual(idsOf(sandboxModels()));
  await publish(sandboxModels().reverse());
  expect(await rows()).toEqual(before);
});

test("a start writes the models that changed, adds new ones and removes those that are gone", async () => {
  const [first, second, third, ...rest] = sandboxModels();
  await publish([first!, second!, ...rest]);
  const before = await rows();
  await publish([{ ...first!, description: "Now told otherwise." }, third!, ...rest]);
  const after = await rows();
  expect([...after.keys()].sort()).toEqual(idsOf([first!, third!, ...rest]));
  for (const { id } of rest) expect(after.get(id)).toBe(before.get(id));
  expect(await searchCatalogue(sql, [["otherwise"]])).toEqual([first!.id]);
  expect(await searchCatalogue(sql, [["deterministic", "answers"]])).toEqual([]);
});

test("an empty catalogue leaves nothing to find", async () => {
  await publish(sandboxModels());
  await publish([]);
  expect((await rows()).size).toBe(0);
});

test("instances that start at once with different catalogues leave one of them, whole", async () => {
  const models = sandboxModels();
  // Rows locked in opposite orders are what deadlocks.
  const catalogues = Array.from({ length: 8 }, (_, start) => {
    const catalogue = models
      .filter((_model, index) => (index + start) % 3 !== 0)
      .map((model) => ({ ...model, name: `${model.name} ${start}` }));
    return start % 2 === 0 ? catalogue : catalogue.reverse();
  });
  for (let round = 0; round < 5; round += 1) {
    await Promise.all(catalogues.map(publish));
    const titles = await sql<{ model_id: string; title: string }[]>`
      SELECT model_id, title FROM catalogue_search ORDER BY model_id COLLATE "C"`;
    const left = catalogues.findIndex((_, start) => titles[0]?.title.includes(` ${start} `));
    expect(left).toBeGreaterThanOrEqual(0);
    expect(titles.map((row) => row.model_id)).toEqual(idsOf(catalogues[left]!));
    for (const { title } of titles) expect(title).toContain(` ${left} `);
  }
});
