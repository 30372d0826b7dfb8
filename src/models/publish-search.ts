import type { Database } from "../../db/client.ts";
import { type CatalogueSearchEntry, syncCatalogueSearch } from "../../db/queries/catalogue-sync.ts";
import type { CatalogueModel } from "../lib/catalogue-model.ts";
import type { ModelIndex } from "../providers/catalogue/model-index.ts";
import { wordsOf } from "./search-words.ts";

/** Makes the models of this process the ones that a search finds. Cheap where that is so already. */
export async function publishSearch(sql: Database, models: ModelIndex): Promise<void> {
  await syncCatalogueSearch(sql, models.all().map(searchEntry));
}

function providersOf(model: CatalogueModel): string[] {
  return [...new Set(model.endpoints.map(({ provider }) => provider))];
}

/** What a model can be found by, weightiest first: its name, where it comes from, its description. */
function searchEntry(model: CatalogueModel): CatalogueSearchEntry {
  const slug = wordsOf(model.id.slice(model.id.lastIndexOf("/") + 1));
  return {
    modelId: model.id,
    // In one piece too, because people write gpt4o.
    title: [...wordsOf(model.name), ...slug, slug.join("")].join(" "),
    origin: wordsOf(
      [model.id, model.provider, model.ownedBy, ...providersOf(model)].join(" "),
    ).join(" "),
    description: wordsOf(model.description).join(" "),
  };
}
