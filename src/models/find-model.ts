import { unknownModel } from "../calls/routing/unknown-model.ts";
import type { CatalogueModel } from "../lib/catalogue-model.ts";
import type { ModelIndex } from "../providers/catalogue/model-index.ts";

/**
 * The model of an id, active or not, or of a slug that is unambiguous. Throws 404 model_not_found.
 *
 * @param param the query parameter that the name came in
 */
export function findModel(index: ModelIndex, name: string, param?: string): CatalogueModel {
  const model = index.resolve(name);
  if (model !== undefined) return model;
  throw unknownModel(index, name, param);
}
