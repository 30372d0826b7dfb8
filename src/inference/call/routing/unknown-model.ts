import { GatewayError } from "../../../lib/errors.ts";
import { PROVIDER_TYPES, providerType } from "../../../platform/config/provider-types.ts";
import { authorOfName, underKnownAuthor } from "../../../providers/catalogue/canonical-name.ts";
import type { ModelIndex } from "../../../providers/catalogue/model-index.ts";

const MAX_SHOWN_CHARACTERS = 200;
const MAX_CANDIDATES = 10;
/** A provider of the models of most authors, including authors without a provider type of their own. */
const SERVES_MOST = "openrouter";

/** Returns the error for a name that resolves to no model, with suggestions. */
export function unknownModel(
  index: ModelIndex,
  name: string,
  param: string | undefined,
): GatewayError {
  const shown = JSON.stringify(name.slice(0, MAX_SHOWN_CHARACTERS).toWellFormed());
  const candidates = index.candidates(name);
  if (candidates.length > 1) {
    const list = candidates.slice(0, MAX_CANDIDATES).join(", ");
    return new GatewayError(
      "model_not_found",
      `There is no model ${shown}: several models have that name. Send one of ${list}.`,
      { param },
    );
  }
  const message = [
    `There is no model ${shown}.`,
    ...variableHint(index, name),
    ...nearestHint(index, name),
  ].join(" ");
  return new GatewayError("model_not_found", message, { param });
}

function nearestHint(index: ModelIndex, name: string): string[] {
  const nearest = index.nearest(name);
  return nearest.length === 0 ? [] : [`The nearest are ${nearest.join(", ")}.`];
}

/** Returns the setting that would enable a provider of the most likely intended model. */
function variableHint({ enabledTypes }: ModelIndex, name: string): string[] {
  const id = underKnownAuthor(name) ?? name;
  const cut = id.indexOf("/");
  const namedAuthor = authorOfName(id.slice(cut + 1).toLowerCase());
  const author = cut < 0 ? namedAuthor : id.slice(0, cut);
  const hasAuthor = author !== undefined && providerType(author)?.environmentPrefix !== undefined;
  if (!hasAuthor && namedAuthor === undefined) return [];
  const typeName = hasAuthor ? author : SERVES_MOST;
  if (enabledTypes.has(typeName)) return [];
  const { displayName, environmentPrefix, isSelfHosted } = PROVIDER_TYPES[typeName]!;
  const variable = `${environmentPrefix}_${isSelfHosted ? "BASE_URL" : "API_KEY"}`;
  return [`Set ${variable} to enable the models of ${displayName}.`];
}
