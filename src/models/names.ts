import { GatewayError } from "../lib/errors.ts";
import { MAX_COMPARED } from "./schema.ts";

/** The model's name in what a path's wildcard caught, which arrives as it was sent: `a/b` or `a%2Fb`. */
export function nameInPath(wildcard: string): string {
  try {
    return decodeURIComponent(wildcard);
  } catch {
    // What is encoded wrongly is left as it is and names no model.
    return wildcard;
  }
}

/** Names separated by commas. Throws 400 invalid_query where one is empty or there are too many. */
export function comparedNames(list: string): string[] {
  const names = list.split(",", MAX_COMPARED + 1).map((name) => name.trim());
  if (names.length > MAX_COMPARED) {
    throw invalid(`at most ${MAX_COMPARED} models can be compared at a time`);
  }
  if (names.includes("")) throw invalid("it must be model ids separated by commas");
  return names;
}

function invalid(what: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "models": ${what}.`, {
    param: "models",
  });
}
