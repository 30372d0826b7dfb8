import { GatewayError } from "../../../lib/errors.ts";
import { PROVIDER_TYPES, providerType } from "../../../platform/config/provider-types.ts";
import { authorOfName, underKnownAuthor } from "../../../providers/catalogue/canonical-name.ts";
import type { ModelIndex } from "../../../providers/catalogue/model-index.ts";

const MAX_SHOWN_CHARACTERS = 200;
const MAX_CANDIDATES = 10;
/** It serves models of most authors that have no provider of their own here. */
const SERVES_MOST = "openrouter";

/** The error for a name that resolves to no model, with what may be meant. */
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
      `There is no model ${shown}: several have that name. Name one of ${list}.`,
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

/** Which variable would enable a provider of the model that is most likely meant. */
function variableHint({ enabledTypes }: ModelIndex, name: string): string[] {
  const id = underKnownAuthor(name) ?? name;
  const cut = id.indexOf("/");
  const ofName = authorOfName(id.slice(cut + 1).toLowerCase());
  const author = cut < 0 ? ofName : id.slice(0, cut);
  const hasAuthor = author !== undefined && providerType(author)?.environmentPrefix !== undefined;
  if (!hasAuthor && ofName === undefined) return [];
  const typeName = hasAuthor ? author : SERVES_MOST;
  if (enabledTypes.has(typeName)) return [];
  const { displayName, environmentPrefix, isSelfHosted } = PROVIDER_TYPES[typeName]!;
  const variable = `${environmentPrefix}_${isSelfHosted ? "BASE_URL" : "API_KEY"}`;
  return [`Models of ${displayName} are there once ${variable} is set.`];
}
