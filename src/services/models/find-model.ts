import type { CatalogueModel } from "../../lib/catalogue-model.ts";
import { GatewayError } from "../../lib/errors.ts";
import type { ModelIndex } from "../../providers/catalogue/model-index.ts";

const MAX_SHOWN_CHARACTERS = 200;

/**
 * The model of an id, active or not, or of a slug that is unambiguous. Throws 404 model_not_found.
 *
 * @param param the query parameter that the name came in
 */
export function findModel(index: ModelIndex, name: string, param?: string): CatalogueModel {
  const model = index.resolve(name);
  if (model !== undefined) return model;
  const shown = JSON.stringify(name.slice(0, MAX_SHOWN_CHARACTERS).toWellFormed());
  throw new GatewayError("model_not_found", `There is no model ${shown}.`, { param });
}
